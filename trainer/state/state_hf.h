/* The state's parameters from Hugging Face's safetensors. */
#ifndef TRAINER_STATE_STATE_HF_H
#define TRAINER_STATE_STATE_HF_H

#include "state/train_state.h"

/* Parameters from a Hugging Face folder or file, widened to fp32; a classifier that it lacks starts
 * as at random, which is told. Not collective. DCP_ERR_MISMATCH names
 * what is missing, surplus or of another shape. */
int state_read_hf(train_state *s, const char *path, dcp_error *err);
/* Whether the tensors that are there are the model's; errors as above. Of them only a copy of a
 * tied embedding is read. Not collective. */
int state_match_hf(const fsdp_layout *layout, const char *path, dcp_error *err);

#endif
