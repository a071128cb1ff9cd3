/* The state from a checkpoint or from safetensors, and whether its tensors are the model's. */
#pragma once

#include <mpi.h>

#include "fsdp/shard_layout.h"
#include "models/params.h"
#include "state/train_state.h"

/* Whether a checkpoint has one tensor of the right shape for each of a model's parameters. */

/* Reads a box of a tensor that was found, whose elements follow each other, into `out`. */
typedef int (*state_match_read)(void *from, const dcp_tensor *tensor, const dcp_box *box, void *out,
                                dcp_error *err);

/* The state from a checkpoint, or its parameters from Hugging Face's safetensors. */

/* Fills the state from an open checkpoint, of which one without an optimizer's tensors may lack a
 * classifier. Collective over `comm`, of which the checkpoint has a duplicate. sections:
 * STATE_MODEL alone, or STATE_ALL; then *with_slots says whether the optimizer's slots were there.
 * DCP_ERR_MISMATCH: it is one of another model, or has only some of the slots. */
int state_load(train_state *s, MPI_Comm comm, dcp_checkpoint *ckpt, unsigned sections,
               dcp_engine engine, int *with_slots, dcp_error *err);

/* Whether the tensors that are there are the model's and, where `optimizer` is not NULL, its slots;
 * errors as above. Of them only a copy of a tied embedding is read. Not collective. */
int state_match(const fsdp_layout *layout, const optim_type *optimizer, dcp_checkpoint *ckpt,
                int *with_slots, dcp_error *err);

/* Whether a checkpoint has tensors of an optimizer, whichever that was. */
int state_has_optimizer(const dcp_checkpoint *ckpt);

/* Parameters from a Hugging Face folder or file, widened to fp32; a classifier that it lacks starts
 * as at random, which is told. Not collective. DCP_ERR_MISMATCH names
 * what is missing, surplus or of another shape. */
int state_read_hf(train_state *s, const char *path, dcp_error *err);
/* Whether the tensors that are there are the model's; errors as above. Of them only a copy of a
 * tied embedding is read. Not collective. */
int state_match_hf(const fsdp_layout *layout, const char *path, dcp_error *err);
