/* Giving up, for tests: a stop function that says so the n-th time, and one that waits at a gate.
 */
#ifndef TESTS_MPI_CANCEL_H
#define TESTS_MPI_CANCEL_H

#include <semaphore.h>

#include "support/scratch.h"

/* `ctx` is an int: 0 so often, then 1, and it must not be asked again. */
static inline int give_up(void *ctx) {
    int *left = ctx;
    CHECK(*left >= 0);
    return (*left)-- == 0;
}

/* `ctx` is a semaphore that somebody posts once. */
static inline int wait_at_gate(void *ctx) {
    while (sem_wait(ctx)) continue;
    sem_post(ctx);
    return 0;
}

static inline void check_cancelled(int status, const dcp_error *failure, const char *what,
                                   const char *outcome) {
    check_same_failure(status, DCP_ERR_CANCELLED, failure, what);
    CHECK(strstr(failure->message, "was cancelled") && strstr(failure->message, outcome));
}

#endif
