/* The JSON header of a safetensors file, and a parser for large JSON objects. */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "dcp/tensor.h"

/* Reads a JSON object member by member, without building it in memory: the objects that a parser
 * makes from 100 MB of text would require gigabytes. jansson parses each member separately. */

#define ST_WHAT (DCP_MAX_PATH + 4400) /* room for what begins a message: a path and a name */

/* A member's value, as written in the text. */
typedef struct safetensors_value {
    const char *text;
    uint64_t bytes;
} safetensors_value;

typedef int (*safetensors_visit)(void *ctx, const char *name, safetensors_value value,
                                 dcp_error *err);

/* Calls `visit` for each member of the object `text`, in order, until one call fails. `what` begins
 * every message: "<path>: the header". Names are valid UTF-8 without NUL; the same name can occur
 * more than once. Checks only the brackets of values, which may be at most 64 deep;
 * safetensors_value_parse checks the rest. Returns DCP_ERR_CORRUPT if the text is not an object. */
int safetensors_members_visit(const char *what, safetensors_value text, safetensors_visit visit,
                              void *ctx, dcp_error *err);

/* Parses the value as JSON; *out is released with json_decref. Returns DCP_ERR_CORRUPT if it is not
 * JSON, has duplicate keys, or is longer than `max_bytes`, which bounds the memory for parsing it.
 * `what` begins the message: "<path>: tensor 'a'". */
int safetensors_value_parse(const char *what, safetensors_value value, uint64_t max_bytes,
                            json_t **out, dcp_error *err);

/* The JSON header of a safetensors file. The file consists of a u64 length, this header, and the
 * tensors' data. */

#define ST_MAX_HEADER 100000000u  /* the limit of the reference implementation */
#define ST_PREFIX_BYTES 8u        /* the length before the header */
#define ST_MAX_TENSORS (1u << 20) /* in one file, and in one folder's index */

typedef struct safetensors_entry {
    dcp_tensor tensor;   /* path: the plain name, owned */
    uint64_t begin, end; /* place of its data, from the end of the header */
    size_t file;         /* index in the reader's files */
} safetensors_entry;

/* Checks the header `json[bytes]` of a file with `data_bytes` bytes after it, and returns its
 * tensors sorted by name; free them with safetensors_entries_free. `path` is for messages. Returns
 * DCP_ERR_CORRUPT, or DCP_ERR_UNSUPPORTED if something is valid but not supported here. */
int safetensors_header_parse(const char *path, const char *json, uint64_t bytes,
                             uint64_t data_bytes, safetensors_entry **out, size_t *n_out,
                             dcp_error *err);
void safetensors_entries_free(safetensors_entry *entries, size_t n);
int safetensors_entry_compare(const void *a, const void *b);
