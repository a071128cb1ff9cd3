/* Reading files from end to end, past the page cache, at the disk's speed: in chunks, by several
 * threads with several reads in flight each. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "dcp/error.h"

typedef struct io_sweep_file {
    const char *path;
    uint64_t bytes; /* as its tables say: whole pages */
    int folder;     /* as io_open_regular_in has it */
} io_sweep_file;

/* Takes bytes [offset, offset + bytes) of a file. Called from several threads at once, for chunks
 * in any order. */
typedef void (*io_sweep_fn)(void *ctx, size_t file, uint64_t offset, const unsigned char *data,
                            uint64_t bytes);

typedef struct io_sweep {
    const io_sweep_file *files;
    size_t n;
    int rank, size; /* of so many ranks, which share the chunks, this is one; size is 1 at least */
    unsigned threads; /* 1 to IO_THREADS_MOST; each has a queue's buffers, 16 MiB */
    io_sweep_fn fn;
    /* Called from the calling thread alone, with all bytes read by this rank; what it returns,
     * where that is not DCP_OK, ends the reading. May be NULL. */
    int (*on_read)(void *ctx, uint64_t done, dcp_error *err);
    void *ctx;
} io_sweep;

/* Reads this rank's share. A failure ends it on all threads. */
int io_sweep_run(const io_sweep *s, dcp_error *err);
