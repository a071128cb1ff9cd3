/* A count in memory that processes share, and sleeping until it has come far enough. One process
 * counts; any may wait. Counts wrap around, so two of them are compared by their distance. Zeroed
 * memory is a count of 0. */
#pragma once

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

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
