/* Services of the process and of the operating system: clock, threads, locks that survive a
 * fork, random numbers, limits. */
#pragma once

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "dcp/error.h"

/* Seconds of a clock that only goes forward. */

static inline double core_clock_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Of that clock, for functions that wait until then. */
static inline struct timespec core_clock_time(double seconds) {
    const time_t whole = (time_t)seconds;
    return (struct timespec){.tv_sec = whole, .tv_nsec = (long)(1e9 * (seconds - (double)whole))};
}

/* Numbers that nobody can guess. */

/* DCP_ERR_IO where the system has none. */
int core_entropy(uint64_t *out, dcp_error *err);

/* The limit on the size of files that a process writes (RLIMIT_FSIZE, `ulimit -f`). The kernel
 * answers a write or an extension beyond it with SIGXFSZ, which ends the program, so the library
 * asks first. The limit holds for memory files, too. */

/* 0 where this process may write a file up to byte `end`; else -1, and errno is EFBIG. */
int core_file_limit_check(uint64_t end);

/* A count in memory that processes share, and sleeping until it has come far enough. One process
 * counts; any may wait. Counts wrap around, so two of them are compared by their distance. Zeroed
 * memory is a count of 0. */

typedef struct core_futex {
    _Atomic uint32_t count;
    _Atomic uint32_t waiting; /* processes that sleep, or are about to */
} core_futex;

static inline int core_futex_has(core_futex *f, uint32_t count) {
    return (int32_t)(atomic_load(&f->count) - count) >= 0;
}

/* What was written to the memory before is seen by those who see the count. */
static inline void core_futex_set(core_futex *f, uint32_t count) {
    atomic_store(&f->count, count);
    if (atomic_load(&f->waiting))
        syscall(SYS_futex, &f->count, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* Sleeps until the count changes, unless it has come as far as `count`; `nanoseconds` at most.
 * Returns 1 where that time has passed, or a signal has come: those of a timer may come so often
 * that the time never passes. May wake early: ask core_futex_has again. */
static inline int core_futex_sleep(core_futex *f, uint32_t count, long nanoseconds) {
    const struct timespec most = {.tv_nsec = nanoseconds};
    const uint32_t seen = atomic_load(&f->count);
    if ((int32_t)(seen - count) >= 0) return 0;
    atomic_fetch_add(&f->waiting, 1); /* before the kernel looks whether `seen` still holds */
    const long code = syscall(SYS_futex, &f->count, FUTEX_WAIT, seen, &most, NULL, 0);
    const int timed_out = code && errno != EAGAIN;
    atomic_fetch_sub(&f->waiting, 1);
    return timed_out;
}

/* Threads that take no signals: these are for the program's own threads, which may wait for them.
 */

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

/* The locks of the whole process. A fork copies the one thread that calls it: a lock that another
 * thread holds then would be held for ever in the child. So a fork waits for all of these, and the
 * child begins with all of them free and with what they guard whole. Locks of objects need none of
 * this: a child gets no further with an object than to free it (DCP_ERR_STATE), or, of a
 * checkpoint, finds no lock in it.
 *
 * docs/architecture.md lists what else belongs to the whole process; a test compares. */

/* In the order in which a thread that holds one may take the next. A thread that holds one calls no
 * function of the caller's, which could fork. */
typedef enum core_process_lock {
    CORE_LOCK_HDF5,     /* h5/hdf5_lock.c: calls of HDF5, and HDF5's own state */
    CORE_LOCK_OPENED,   /* io/descriptors.c: the list of files that are open for use */
    CORE_LOCK_UNSHARED, /* io/descriptors.c: the list of files that a child closes */
    CORE_PROCESS_LOCKS
} core_process_lock;

void core_process_lock_take(core_process_lock which);
void core_process_lock_leave(core_process_lock which);

/* 1: taken, within about that many seconds; 0: it is not. */
int core_process_lock_take_within(core_process_lock which, int seconds);

/* With the lock, and before there is anything to do: a child calls `fn` first of all, with all
 * locks. */
void core_process_lock_tell_child(core_process_lock which, void (*fn)(void));
