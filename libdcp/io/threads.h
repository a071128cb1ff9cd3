/* A few threads that do positioned reads and writes: requests in flight without io_uring. */
#pragma once

#include <stdint.h>

typedef struct io_job {
    int fd, writing;
    void *buffer;
    uint64_t bytes, offset;
    int64_t result; /* bytes done, maybe fewer; or -errno */
    struct io_job *next;
} io_job;

typedef struct io_threads io_threads;

/* NULL where memory is short. Where not one thread can be started, io_threads_submit does the work.
 */
io_threads *io_threads_create(unsigned n);
/* Nothing may be in flight. NULL is ignored. */
void io_threads_destroy(io_threads *threads);

/* Starts a job; it and its buffer stay the caller's until io_threads_take returned it. */
void io_threads_submit(io_threads *threads, io_job *job);
/* Waits for a job that is done. At least one must be in flight. */
io_job *io_threads_take(io_threads *threads);

enum { IO_THREADS_MOST = 32 }; /* of a team */

/* The work of member `number` of a team. */
typedef void (*io_threads_fn)(void *ctx, unsigned number);
/* Does fn(ctx, number) for the numbers below n (IO_THREADS_MOST at most): 0 on the calling thread,
 * the others on threads of their own, fewer where they can't be started. Returns when all are done.
 */
void io_threads_run(unsigned n, io_threads_fn fn, void *ctx);

/* The cores that this process may use where `ranks` processes share them: from 1 to `most`. */
unsigned io_threads_cores(int ranks, unsigned most);
