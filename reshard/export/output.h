/* Writing parts of files that are there, whole pages past the page cache where the file system lets
 * it: a disk takes them several times as fast as the kernel writes back what lies in memory. */
#ifndef RESHARD_OUTPUT_H
#define RESHARD_OUTPUT_H

#include <limits.h>
#include <stdint.h>

typedef struct output {
    int fd, direct; /* -1: no file; no direct writes */
    char path[PATH_MAX + 80];
    char *buffer;            /* byte i is for the file's byte base + i */
    uint64_t base, from, to; /* what is to be written: [from, to) of the buffer */
} output;

/* Functions return exit statuses, having said what failed. */

int output_open(output *out, const char *path);
/* Bytes that follow each other are joined. `data` may change after the return. */
int output_write(output *out, uint64_t offset, const void *data, uint64_t bytes);
/* Writes what is left, and makes the file durable; with a `status` that is not 0 only closes it,
 * and returns that. A file that isn't open is let pass. */
int output_close(output *out, int status);

#endif
