/* Threads that take jobs from one list, in the order of submission, and leave them in another. */
#include "io/threads.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct job_list {
    io_job *first, **end;
    pthread_cond_t changed;
} job_list;

struct io_threads {
    pthread_mutex_t lock;
    job_list waiting, done;
    int ending;
    unsigned n;
    pthread_t ids[];
};

static void list_init(job_list *list) {
    list->first = NULL;
    list->end = &list->first;
    pthread_cond_init(&list->changed, NULL);
}

static void append(job_list *list, io_job *job) {
    job->next = NULL;
    *list->end = job;
    list->end = &job->next;
    pthread_cond_signal(&list->changed);
}

static io_job *remove_first(job_list *list) {
    io_job *job = list->first;
    list->first = job->next;
    if (!list->first) list->end = &list->first;
    return job;
}

static void perform(io_job *job) {
    off_t at = (off_t)job->offset;
    ssize_t n = job->writing ? pwrite(job->fd, job->buffer, job->bytes, at)
                             : pread(job->fd, job->buffer, job->bytes, at);
    job->result = n < 0 ? -errno : n;
}

static void *work(void *ctx) {
    io_threads *t = ctx;
    pthread_mutex_lock(&t->lock);
    for (;;) {
        while (!t->waiting.first && !t->ending) pthread_cond_wait(&t->waiting.changed, &t->lock);
        if (!t->waiting.first) break;
        io_job *job = remove_first(&t->waiting);
        pthread_mutex_unlock(&t->lock);
        perform(job);
        pthread_mutex_lock(&t->lock);
        append(&t->done, job);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

io_threads *io_threads_create(unsigned n) {
    io_threads *t = calloc(1, sizeof *t + n * sizeof *t->ids);
    if (!t) return NULL;
    pthread_mutex_init(&t->lock, NULL);
    list_init(&t->waiting);
    list_init(&t->done);
    sigset_t all, before; /* signals are for the program's own threads */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (t->n < n && !pthread_create(&t->ids[t->n], NULL, work, t)) t->n++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return t;
}

void io_threads_destroy(io_threads *t) {
    if (!t) return;
    pthread_mutex_lock(&t->lock);
    t->ending = 1;
    pthread_cond_broadcast(&t->waiting.changed);
    pthread_mutex_unlock(&t->lock);
    for (unsigned i = 0; i < t->n; i++) pthread_join(t->ids[i], NULL);
    pthread_cond_destroy(&t->waiting.changed);
    pthread_cond_destroy(&t->done.changed);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

void io_threads_submit(io_threads *t, io_job *job) {
    if (!t->n) perform(job);
    pthread_mutex_lock(&t->lock);
    append(t->n ? &t->waiting : &t->done, job);
    pthread_mutex_unlock(&t->lock);
}

io_job *io_threads_take(io_threads *t) {
    pthread_mutex_lock(&t->lock);
    while (!t->done.first) pthread_cond_wait(&t->done.changed, &t->lock);
    io_job *job = remove_first(&t->done);
    pthread_mutex_unlock(&t->lock);
    return job;
}
