/* How images become numbers, as preprocessor_config.json of a Hugging Face folder says. */
#pragma once

#include "models/sample.h"
#include "state/train_state.h"

/* Collective. Without such a file, or where it does not normalize, out->channels is 0; else it is
 * the model's. DCP_ERR_ARG: what in the file is no such thing. */
int state_preprocessor_read(const train_state *s, MPI_Comm comm, uint64_t channels,
                            sample_normalization *out, dcp_error *err);
