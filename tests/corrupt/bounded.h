/* What a reader may use on a hostile file: memory and seconds, far more than it needs and far less
 * than a believed number would take. The child that exceeds them dies, which the parent tells. */
#ifndef TESTS_BOUNDED_H
#define TESTS_BOUNDED_H

#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* A hang's, not a speed's: on a machine whose fresh pages are slow, a million allocations under
 * ASan took two minutes. */
#ifdef __SANITIZE_ADDRESS__
#define LIMIT_SECONDS 300
#else
#define LIMIT_SECONDS 120
#endif
#define LIMIT_BYTES (1ULL << 30)

/* Runs check(ctx) in a child under the limits; what it returns, or 128 and the signal that ended
 * it. Sanitizers reserve all of the address space, so there only the seconds count. */
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
