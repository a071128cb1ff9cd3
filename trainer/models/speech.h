/* A talker's run: converts its samples to the lists of ids and rows that its stages read
 * (speech_lists), and makes the predictor's run that it contains. */
#pragma once

#include <dcp/error.h>

#include "models/parts.h"

enum { SPEECH_SPEAKER = 6 }; /* the row of the speaker's vector */

/* Makes the predictor's run, for all frames of a batch of `run`. Allocates no arrays for it. */
int model_speech_begin(model_run *run, dcp_error *err);
void model_speech_lay_out(model_run *run, arena *a);
/* Allocates the lists in the host's memory. */
int model_speech_allocate_lists(model_run *run, dcp_error *err);
/* Checks the samples and uploads them. DCP_ERR_ARG: an id, code or target is outside its
 * vocabulary, or there is no room for a sample. */
int model_speech_set(model_run *run, const sample_batch *batch, dcp_error *err);

/* The ids of one code of all frames, [frames]. */
static inline const int32_t *model_speech_codes(const model_run *outer, size_t code) {
    return outer->speech.lists.codes + code * outer->speech.frames;
}
