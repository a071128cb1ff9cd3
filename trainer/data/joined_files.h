/* A list of files that is read as one string of bytes; recognition of files that do not contain
 * plain ids; and searches in ascending lists. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <dcp/error.h>

/* The format of a file that was given although it does not contain plain ids. */

typedef struct data_format {
    const char *what;   /* "an array of numpy (.npy)" */
    const char *advice; /* how to convert it to ids */
} data_format;

/* The format whose magic number the file begins with; NULL if there is no such format. */
const data_format *data_formats_find(const uint8_t *begin, uint64_t bytes);

/* Guesses whether ids are wider than `width` bytes. Little-endian ids that are 2 or 4 times as wide
 * look like ids of `width` bytes with zeros between them. Returns the width that was found, or
 * `width` if that may be correct or if there are too few ids to decide. */
uint32_t data_formats_width(const uint8_t *ids, uint64_t bytes, uint32_t width);

/* Searches in lists of entries that are sorted by a number in each entry, ascending. */

/* Returns the last entry whose number is at most `value`, or the first entry if there is no such
 * entry. The list has n > 0 entries. `number` points to the first entry's number; `size` is an
 * entry's size in bytes. */
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

/* A list of files that is read as one long string of bytes. */

typedef struct data_file {
    char *path;
    uint64_t begin, bytes; /* begin: offset of its first byte in the string */
} data_file;

typedef struct data_files {
    data_file *list; /* ascending by path, without empty files */
    size_t n;
    uint64_t bytes; /* of all files */
    size_t open;    /* the index of the file that `fd` refers to */
    int fd;         /* -1 if none */
} data_files;

/* Finds the files: `path` is a file, a folder (all regular files below it except hidden ones) or a
 * glob pattern of files and folders. Files that are empty are left out; out->n is 0 if none are
 * left. Returns DCP_ERR_NOT_FOUND if nothing matches the path, or if this user has no permission to
 * read a file or folder. */
int data_files_find(const char *path, data_files *out, dcp_error *err);
/* Returns the path of the first file of `other` that is also a file of `path`, even if the file has
 * two different paths. Returns NULL if there is no such file, or if that cannot be determined. Free
 * the text with free(). */
char *data_files_shared(const char *path, const char *other);
/* Appends a file after the others; ignores an empty one. */
int data_files_append(data_files *files, const char *path, dcp_error *err);
/* Removes each file for whose path `keep` returns false. */
void data_files_keep(data_files *files, bool (*keep)(const char *path));
void data_files_close(data_files *files);

/* The path of the file that contains byte `offset` of the string; *within receives the offset in
 * that file. */
const char *data_files_at(const data_files *files, uint64_t offset, uint64_t *within);

/* Reads bytes [offset, offset + bytes) of the string, which must lie inside it. */
int data_files_read(data_files *files, uint64_t offset, uint64_t bytes, void *out, dcp_error *err);
