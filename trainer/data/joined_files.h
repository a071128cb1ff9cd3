/* A list of files read as one long string of bytes. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <dcp/error.h>

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
