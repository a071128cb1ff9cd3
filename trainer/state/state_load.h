/* Fills the state from a checkpoint or from safetensors, and checks that their tensors match the
 * model's. */
#pragma once

#include <mpi.h>
#include <stdbool.h>

#include "fsdp/shard_layout.h"
#include "models/params.h"
#include "state/train_state.h"

/* Reads a box of a tensor into `out`. The elements of the box are contiguous in the tensor. */
typedef int (*state_match_read)(void *from, const dcp_tensor *tensor, const dcp_box *box, void *out,
                                dcp_error *err);

/* Fills the state from an open checkpoint. If the checkpoint has no optimizer's tensors, a missing
 * classifier is initialized randomly. Collective over `comm`; the checkpoint was opened with a
 * duplicate of `comm`.
 * sections: STATE_MODEL alone, or STATE_ALL; with STATE_ALL, *with_slots says whether the
 * optimizer's slots were loaded. DCP_ERR_MISMATCH: the checkpoint belongs to another model, or has
 * only some of the slots. */
int state_load(train_state *s, MPI_Comm comm, dcp_checkpoint *ckpt, unsigned sections,
               dcp_engine engine, int *with_slots, dcp_error *err);

/* Checks that the checkpoint's tensors match the model's and, if `optimizer` is not NULL, that the
 * checkpoint's slots match the optimizer's. Returns the errors of state_load. Reads no tensor
 * except a copy of a tied embedding. Not collective. */
int state_match(const fsdp_layout *layout, const optim_type *optimizer, dcp_checkpoint *ckpt,
                bool *with_slots, dcp_error *err);

/* Returns true if a checkpoint has tensors of any optimizer. */
bool state_has_optimizer(const dcp_checkpoint *ckpt);

/* Reads parameters from a Hugging Face folder or file and widens them to fp32. A missing classifier
 * is initialized randomly, which is reported. Not collective. DCP_ERR_MISMATCH: the message names
 * tensors that are missing, surplus or of another shape. */
int state_read_hf(train_state *s, const char *path, dcp_error *err);
/* Checks that the tensors of a Hugging Face folder or file match the model's. Returns the errors of
 * state_read_hf. Reads no tensor except a copy of a tied embedding. Not collective. */
int state_match_hf(const fsdp_layout *layout, const char *path, dcp_error *err);
