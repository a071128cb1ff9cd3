/* Reads a JSON object member by member without building it in memory: the objects that a parser
 * makes of 100 MB of text would take gigabytes. Each member by itself is parsed by jansson. */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "dcp/tensor.h"

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
