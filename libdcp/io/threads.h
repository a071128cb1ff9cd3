/* Threads that do positioned reads and writes: requests in flight without io_uring. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct io_job {
    int fd;
    bool writing;
    void *buffer;
    uint64_t bytes, offset;
    int64_t result; /* number of bytes, possibly fewer than requested; or -errno */
    struct io_job *next;
} io_job;

typedef struct io_threads io_threads;

/* Returns NULL if memory is short. If not a single thread can be started, io_threads_submit does
 * the work. */
io_threads *io_threads_create(unsigned n);
/* Nothing may be in flight. NULL is ignored. */
void io_threads_destroy(io_threads *threads);

/* Starts a job. The job and its buffer must remain valid until io_threads_reap has returned the
 * job. */
void io_threads_submit(io_threads *threads, io_job *job);
/* Waits for a completed job and returns it. At least one job must be in flight. */
io_job *io_threads_reap(io_threads *threads);

enum { IO_THREADS_MAX = 32 }; /* per team */

/* The work of member `number` of a team. */
typedef void (*io_threads_fn)(void *ctx, unsigned number);
/* Calls fn(ctx, number) for the numbers 0 to n - 1, of which there are at most IO_THREADS_MAX.
 * Number 0 runs on the calling thread, and each other number on a thread of its own. If a thread
 * can't be started, its number and all higher ones are left out. Returns when all calls have
 * ended. */
void io_threads_run(unsigned n, io_threads_fn fn, void *ctx);

/* Returns the number of cores that this process may use if `ranks` processes share them: 1 to
 * `most`. */
unsigned io_threads_cores(int ranks, unsigned most);
