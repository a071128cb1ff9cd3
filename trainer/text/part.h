/* A part of a tokenizer.json: an object with a "type", such as a normalizer. */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include "dcp/error.h"

typedef struct text_part {
    const char *file, *key; /* how messages call the file, and the key that the part belongs to */
    const char *type;       /* NULL: none, or not read yet */
    const json_t *value;
} text_part;

typedef int (*text_part_fn)(void *ctx, const text_part *part, dcp_error *err);

/* Calls `fn` for the part, or for each of those of a Sequence, whose list has the key `list`; for
 * none where the value is missing or null. */
int text_part_each(const text_part *part, const char *list, text_part_fn fn, void *ctx,
                   dcp_error *err);

/* Returns the status, with a message that begins with file, key and type. */
int text_part_fail(const text_part *part, int status, dcp_error *err, const char *fmt, ...)
    DCP_PRINTF(4, 5);

/* true or false; `absent` where the member is missing or null. */
int text_part_flag(const text_part *part, const char *member, int absent, int *out, dcp_error *err);

/* A string, valid as long as the JSON; `absent` where the member is missing or null, of which NULL
 * says that it must be there. */
int text_part_string(const text_part *part, const char *member, const char *absent,
                     const char **out, dcp_error *err);

/* An integer of 0 to `most`. */
int text_part_number(const text_part *part, const char *member, json_int_t most, json_int_t *out,
                     dcp_error *err);
