/* Reading files from end to end, past the page cache, at the disk's speed: in chunks, by several
 * threads that have several reads in flight each. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "dcp/error.h"

typedef struct io_scan_file {
    const char *path;
    uint64_t bytes; /* according to its tables; whole pages */
    int folder;     /* as for io_open_regular_in */
} io_scan_file;

/* Receives bytes [offset, offset + bytes) of a file. Called by several threads at once, for chunks
 * in any order. */
typedef void (*io_scan_fn)(void *ctx, size_t file, uint64_t offset, const unsigned char *data,
                           uint64_t bytes);

typedef struct io_scan {
    const io_scan_file *files;
    size_t n;
    int rank, size;   /* this rank and the number of ranks that share the chunks, at least 1 */
    unsigned threads; /* 1 to IO_THREADS_MAX; each has a queue with 16 MiB of buffers */
    io_scan_fn fn;
    /* Called on the calling thread only, with the number of bytes that this rank has read. A result
     * other than DCP_OK ends the reading. May be NULL. */
    int (*on_read)(void *ctx, uint64_t done, dcp_error *err);
    void *ctx;
} io_scan;

/* Reads this rank's share. A failure ends the reading on all threads. */
int io_scan_run(const io_scan *s, dcp_error *err);
