/* The JSON header of a safetensors file, and a parser for large JSON objects. */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "dcp/tensor.h"

/* Reads a JSON object member by member without building it in memory: the objects that a parser
 * makes of 100 MB of text would take gigabytes. Each member by itself is parsed by jansson. */

#define ST_WHAT (DCP_MAX_PATH + 4400) /* a file's path and a name, to begin a message with */

/* A member's value as it stands in the text. */
typedef struct safetensors_value {
    const char *text;
    uint64_t bytes;
} safetensors_value;

typedef int (*safetensors_visit)(void *ctx, const char *name, safetensors_value value,
                                 dcp_error *err);

/* Calls `visit` for each member of the object `text`, in order, until one fails. `what` begins
 * every message: "<path>: the header". Names are valid UTF-8 without NUL; the same name may come
 * again. Of a value only its brackets are checked, at most 64 deep; safetensors_value_parse checks
 * the rest. DCP_ERR_CORRUPT: not an object. */
int safetensors_members_visit(const char *what, safetensors_value text, safetensors_visit visit,
                              void *ctx, dcp_error *err);

/* The value as JSON; *out is released with json_decref. DCP_ERR_CORRUPT: it isn't JSON, has a key
 * twice, or has more than `max_bytes`, which bounds the memory that it takes. `what` begins the
 * message: "<path>: tensor 'a'". */
int safetensors_value_parse(const char *what, safetensors_value value, uint64_t max_bytes,
                            json_t **out, dcp_error *err);

/* The JSON header of one safetensors file: u64 length, JSON, then the tensors' data. */

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
