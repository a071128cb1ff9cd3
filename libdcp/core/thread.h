/* Threads that take no signals: these are for the program's own threads, which may wait for them.
 */
#pragma once

#include <pthread.h>
#include <signal.h>

/* As pthread_create; the name, of at most 15 characters, is in top and in profiles. 0, or an
 * error's code. */
static inline int core_thread_start(pthread_t *id, const pthread_attr_t *attributes,
                                    void *(*fn)(void *), void *ctx, const char *name) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(id, attributes, fn, ctx);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!failed) pthread_setname_np(*id, name);
    return failed;
}
