/* Records in safetensors files, each of which stores all of its records one after the other. */
#pragma once

#include "data/joined_files.h"
#include <dcp/safetensors.h>

/* The maximum number of lists of starts per file. Such a list says where each record begins, and
 * where the last one ends. */
enum { RECORD_MAX_STARTS = 2 };

typedef struct record_file {
    dcp_st_reader *reader;
    const char *path;                   /* owned by the list of files */
    int64_t *starts[RECORD_MAX_STARTS]; /* [records + 1]; NULL if there is no such list */
    uint64_t records, first;            /* first: the index of its first record among all records */
} record_file;

typedef struct record_files {
    data_files files;
    record_file *list; /* [files.n] */
    uint64_t records;
    const char *anew; /* the remedy for an invalid file, for messages */
} record_files;

/* Reads the lists of a file, checks it, and sets its number of records. */
typedef int (*record_file_read)(void *ctx, record_file *file, dcp_error *err);

/* Opens the files that `path` names. Call data_record_files_close even after an error. anew: see
 * record_files; must be static. Messages begin with data.path. */
int data_record_files_open(const char *path, const char *anew, record_file_read read, void *ctx,
                           record_files *out, dcp_error *err);
void data_record_files_close(record_files *r);

/* The file that contains record number `record`. */
const record_file *data_record_files_holder(const record_files *r, uint64_t record);

/* Reads the tensor `name`, which the file must have, into f->starts[which]. */
int data_record_file_starts(record_file *f, size_t which, const char *name, dcp_error *err);

/* Reads bytes [offset, offset + bytes) of a tensor. */
int data_record_file_part(const record_file *f, const char *name, uint64_t offset, uint64_t bytes,
                          void *out, dcp_error *err);
