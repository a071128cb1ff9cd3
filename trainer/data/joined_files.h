/* A list of files that is read as one string of bytes, files that are not plain ids, and searches
 * in ascending lists. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <dcp/error.h>

/* Files that are no plain ids, though they are found where such are expected. */

typedef struct data_format {
    const char *what;   /* "an array of numpy's (.npy)" */
    const char *advice; /* what makes ids of it */
} data_format;

/* The format whose mark the file's first bytes are; NULL: none that is known. */
const data_format *data_formats_find(const uint8_t *begin, uint64_t bytes);

/* The width of the ids that lie there, where ids of `width` bytes would have zeros between them:
 * little-endian ones of 2 or 4 times as many bytes. `width` where they may be such; a few ids tell
 * nothing. */
uint32_t data_formats_width(const uint8_t *ids, uint64_t bytes, uint32_t width);

/* Searching in lists that ascend by a number of each entry. */

/* The last of n > 0 entries whose number is at most `value`; the first one where none is. `number`
 * is that of the first entry, `size` the bytes of an entry. */
static inline size_t data_sorted_last(const uint64_t *number, size_t n, size_t size,
                                      uint64_t value) {
    size_t low = 0, high = n;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (*(const uint64_t *)(const void *)((const char *)number + middle * size) <= value)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* A list of files read as one long string of bytes. */

typedef struct data_file {
    char *path;
    uint64_t begin, bytes; /* begin: offset of its first byte in the whole */
} data_file;

typedef struct data_files {
    data_file *list; /* ascending by path; empty files are left out */
    size_t n;
    uint64_t bytes; /* of all */
    size_t open;    /* which one `fd` is */
    int fd;         /* -1: none */
} data_files;

/* Finds the files: `path` is one, a folder (all regular files below it but hidden ones) or a glob
 * pattern of files and folders. DCP_ERR_NOT_FOUND: there are none, or one cannot be read. */
int data_files_find(const char *path, data_files *out, dcp_error *err);
/* The path of the first file of `other` that `path` names as well, by whatever spelling; NULL:
 * there is none, or it cannot be told. Freed with free(). */
char *data_files_shared(const char *path, const char *other);
/* One more file, behind the others; an empty one is left out. */
int data_files_append(data_files *files, const char *path, dcp_error *err);
/* Drops the files whose path is not to be kept. */
void data_files_keep(data_files *files, int (*keep)(const char *path));
void data_files_close(data_files *files);

/* The path of the file that byte `offset` of the whole lies in, and in *within its offset there. */
const char *data_files_at(const data_files *files, uint64_t offset, uint64_t *within);

/* Bytes [offset, offset + bytes) of the whole, which must lie inside it. */
int data_files_read(data_files *files, uint64_t offset, uint64_t bytes, void *out, dcp_error *err);
