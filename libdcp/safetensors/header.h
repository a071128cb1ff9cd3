/* The JSON header of one safetensors file: u64 length, JSON, then the tensors' data. */
#ifndef DCP_SAFETENSORS_HEADER_H
#define DCP_SAFETENSORS_HEADER_H

#include <stddef.h>

#include "dcp/tensor.h"

#define ST_MAX_HEADER 100000000u  /* the cap of the reference implementation */
#define ST_PREFIX_BYTES 8u        /* the length before the header */
#define ST_MAX_TENSORS (1u << 20) /* of one file, and of one folder's index */

typedef struct st_entry {
    dcp_tensor tensor;   /* path: the plain name, owned */
    uint64_t begin, end; /* of its data, from the end of the header */
    size_t file;         /* which of a reader's files */
} st_entry;

/* Checks the header `json[bytes]` of a file with `data_bytes` bytes after it, and gives its tensors
 * ascending by name. `path` is for messages. */
int st_header_parse(const char *path, const char *json, uint64_t bytes, uint64_t data_bytes,
                    st_entry **out, size_t *n_out, dcp_error *err);
void st_entries_free(st_entry *entries, size_t n);
int st_entry_compare_names(const void *a, const void *b);

/* The length and the header of a file with these tensors one after another, padded with spaces to a
 * multiple of 8 bytes. *out is the caller's to free. */
int st_header_format(const dcp_tensor *tensors, size_t n, char **out, uint64_t *bytes_out,
                     dcp_error *err);

#endif
