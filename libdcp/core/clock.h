/* Seconds of a clock that only goes forward. */
#pragma once

#include <time.h>

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
