/* What a tokenizer.json's post-processor adds to the ids of one text. */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "dcp/error.h"

typedef struct text_frame {
    int32_t *before, *after;
    size_t n_before, n_after;
} text_frame;

/* `value`: that of the key "post_processor", NULL or null: nothing is added. An id above `highest`
 * is none. The owner calls text_frame_free on failure too. */
int text_post_processor_read(const char *file, const json_t *value, int32_t highest,
                             text_frame *out, dcp_error *err);
void text_frame_free(text_frame *frame);
