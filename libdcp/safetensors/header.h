/* The JSON header of one safetensors file: u64 length, JSON, then the tensors' data. */
#pragma once

#include <stddef.h>

#include "dcp/tensor.h"

#define ST_MAX_HEADER 100000000u  /* the cap of the reference implementation */
#define ST_PREFIX_BYTES 8u        /* the length before the header */
#define ST_MAX_TENSORS (1u << 20) /* of one file, and of one folder's index */

typedef struct safetensors_entry {
    dcp_tensor tensor;   /* path: the plain name, owned */
    uint64_t begin, end; /* of its data, from the end of the header */
    size_t file;         /* which of a reader's files */
} safetensors_entry;

/* Checks the header `json[bytes]` of a file with `data_bytes` bytes after it, and gives its tensors
 * ascending by name, for safetensors_entries_free. `path` is for messages. DCP_ERR_CORRUPT, or
 * DCP_ERR_UNSUPPORTED for what is valid but not known here. */
int safetensors_header_parse(const char *path, const char *json, uint64_t bytes,
                             uint64_t data_bytes, safetensors_entry **out, size_t *n_out,
                             dcp_error *err);
void safetensors_entries_free(safetensors_entry *entries, size_t n);
int safetensors_entry_compare(const void *a, const void *b);
