/* The memory and time that a reader may use for a hostile file: far more than it needs, and far
 * less than a number in the file would demand if it were believed. A child that exceeds them dies,
 * and the parent reports that. */
#ifndef TESTS_BOUNDED_H
#define TESTS_BOUNDED_H

#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* Detects a hang, not low speed: on a machine with slow fresh pages, a million allocations under
 * ASan took two minutes. */
#ifdef __SANITIZE_ADDRESS__
#define LIMIT_SECONDS 300
#else
#define LIMIT_SECONDS 120
#endif
#define LIMIT_BYTES (1ULL << 30)

/* Runs check(ctx) in a child under the limits; returns its result, or 128 plus the signal that
 * ended it. Sanitizers reserve the whole address space, so with them only the time is limited. */
static inline int under_limits(int (*check)(void *ctx), void *ctx) {
    pid_t child = fork();
    if (child == 0) {
#ifndef __SANITIZE_ADDRESS__
        struct rlimit memory = {LIMIT_BYTES, LIMIT_BYTES};
        if (setrlimit(RLIMIT_AS, &memory)) _exit(99);
#endif
        alarm(LIMIT_SECONDS);
        _exit(check(ctx));
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child) return 98;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

#endif
