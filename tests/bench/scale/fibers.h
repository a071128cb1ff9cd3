/* Many small programs in one thread, each on a stack of its own. One runs until it waits; then the
 * next one runs that need not wait any more. */
#ifndef TESTS_BENCH_SCALE_FIBERS_H
#define TESTS_BENCH_SCALE_FIBERS_H

#include <stdint.h>

typedef struct fibers_user {
    void (*run)(void *ctx, int number);   /* the program of each */
    void (*enter)(void *ctx, int number); /* before it goes on */
    void (*leave)(void *ctx, int number); /* when it waits or has ended */
    void *ctx;
} fibers_user;

/* Runs n programs to their ends. */
void fibers_run(int n, const fibers_user *user);

/* Called by one of them: waits until *gate is no more what it is now. */
void fibers_wait(const uint64_t *gate);

#endif
