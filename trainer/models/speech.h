/* A talker's run: its samples as lists of rows, and its predictor inside. */
#pragma once

#include <dcp/error.h>

#include "models/parts.h"

/* A talker's run: its samples as lists of rows, which stages look up, and its predictor's run
 * inside. */

enum { SPEECH_SPEAKER = 6 }; /* the row of the speaker's vector */

/* Makes the predictor's run, without its memory, for the frames of the outer one's shape. */
int model_speech_begin(model_run *run, dcp_error *err);
void model_speech_lay_out(model_run *run, arena *a);
/* Lists in the host's memory. */
int model_speech_take_lists(model_run *run, dcp_error *err);
/* Checks the samples and uploads them. DCP_ERR_ARG: an id, code or target outside its vocabulary,
 * or a sample that has no room. */
int model_speech_set(model_run *run, const sample_batch *batch, dcp_error *err);

/* Ids of one code of all frames, [frames]. */
static inline const int32_t *model_speech_codes(const model_run *outer, size_t code) {
    return outer->speech.lists.codes + code * outer->speech.frames;
}
