/* Cancellation, for tests: a stop function that cancels at the n-th call, and one that waits at a
 * gate. */
#ifndef TESTS_MPI_CANCEL_H
#define TESTS_MPI_CANCEL_H

#include <semaphore.h>

#include "support/scratch.h"

/* ctx: an int, the number of calls that return 0 before one that returns 1, after which the
 * function must not be called again. */
static inline int give_up(void *ctx) {
    int *left = ctx;
    CHECK(*left >= 0);
    return (*left)-- == 0;
}

/* ctx: a semaphore that is posted once. */
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
