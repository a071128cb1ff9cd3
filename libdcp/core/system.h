/* Services of the process and of the operating system: clock, threads, locks that survive a fork,
 * random numbers, limits. */
#pragma once

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "dcp/error.h"

/* Returns the time, in seconds, of a clock that never goes backwards. */

static inline double core_clock_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Converts a time of that clock, for functions that wait until such a time. */
static inline struct timespec core_clock_timespec(double seconds) {
    const time_t whole = (time_t)seconds;
    return (struct timespec){.tv_sec = whole, .tv_nsec = (long)(1e9 * (seconds - (double)whole))};
}

/* Random numbers that nobody can guess. */

/* *out becomes a random number. Returns DCP_ERR_IO if the system provides none. */
int core_entropy(uint64_t *out, dcp_error *err);

/* The limit on the size of files that a process writes (RLIMIT_FSIZE, `ulimit -f`). The kernel
 * answers a write or an extension beyond this limit with SIGXFSZ, which ends the program, so the
 * library checks first. The limit also applies to memory files. */

/* Returns 0 if this process may write a file up to byte `end`; otherwise -1, with errno EFBIG. */
int core_file_limit_check(uint64_t end);

/* A counter in shared memory that a process can wait on. One process increments it; any number of
 * processes may wait. Counts wrap around, so they are compared by their difference. Zeroed memory
 * is a count of 0. */

typedef struct core_futex {
    _Atomic uint32_t count;
    _Atomic uint32_t waiting; /* processes that sleep, or are about to */
} core_futex;

static inline bool core_futex_reached(core_futex *f, uint32_t count) {
    return (int32_t)(atomic_load(&f->count) - count) >= 0;
}

/* Sets the count. A process that sees the new count also sees everything that was written to memory
 * before it. */
static inline void core_futex_set(core_futex *f, uint32_t count) {
    atomic_store(&f->count, count);
    if (atomic_load(&f->waiting))
        syscall(SYS_futex, &f->count, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* Sleeps until the count changes, unless it has already reached `count`; at most `nanoseconds`.
 * Returns true if that time has passed, or if a signal has arrived: a timer's signals may be so
 * frequent that the time never passes. May return early, so check core_futex_reached again. */
static inline bool core_futex_sleep(core_futex *f, uint32_t count, long nanoseconds) {
    const struct timespec most = {.tv_nsec = nanoseconds};
    const uint32_t seen = atomic_load(&f->count);
    if ((int32_t)(seen - count) >= 0) return false;
    atomic_fetch_add(&f->waiting, 1); /* before the kernel compares the count with `seen` */
    const long code = syscall(SYS_futex, &f->count, FUTEX_WAIT, seen, &most, NULL, 0);
    const bool timed_out = code && errno != EAGAIN;
    atomic_fetch_sub(&f->waiting, 1);
    return timed_out;
}

/* Threads that receive no signals. Signals are left to the program's own threads, which may wait
 * for them. */

/* Like pthread_create. The name, of at most 15 characters, appears in top and in profiles. Returns
 * 0, or an error code. */
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

/* The locks of the whole process. A fork copies only the thread that calls it: a lock that another
 * thread holds would remain locked in the child forever. So a fork waits for all of these locks,
 * and the child begins with all of them free and with consistent data behind them. Locks of objects
 * do not need this: a child can do nothing with an object except free it (DCP_ERR_STATE), and a
 * checkpoint has no lock.
 *
 * docs/architecture.md lists all state of the whole process; a test compares the list with the
 * library's variables. */

/* A thread may take locks only in this order. A thread that holds one must not call a function of
 * the library's caller, since that function could fork. */
typedef enum core_process_lock {
    CORE_LOCK_HDF5,       /* h5/hdf5_lock.c: calls of HDF5, and HDF5's own state */
    CORE_LOCK_OPENED,     /* io/descriptors.c: the list of files that are open for use */
    CORE_LOCK_LOCK_FILES, /* io/descriptors.c: the list of files that a child closes */
    CORE_PROCESS_LOCKS
} core_process_lock;

void core_process_lock_acquire(core_process_lock which);
void core_process_lock_release(core_process_lock which);

/* Tries to take the lock for about `seconds` seconds. Returns true if it was taken, otherwise
 * false. */
bool core_process_lock_timed_acquire(core_process_lock which, int seconds);

/* After a fork, the child calls `fn` before anything else, while it holds all locks. The calling
 * thread must hold the lock `which`. */
void core_process_lock_on_fork(core_process_lock which, void (*fn)(void));
