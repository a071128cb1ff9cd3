/* Selects the tensors of a state that a load fills, and the stored tensors from which it fills them
 * (dcp_load_options). */
#pragma once

#include <stdbool.h>

#include "comm/vote.h"
#include "core/state_dict.h"
#include "reader/checkpoint.h"

typedef struct load_selection {
    state_tensor **wanted;        /* the selected tensors of the state, sorted by path */
    const reader_tensor **stored; /* their counterparts in the checkpoint; NULL: missing there */
    size_t n;
} load_selection;

/* Collective. Adds two checks to the vote `v` (that all ranks passed the same options, and that all
 * called the same function), and runs the vote. */
int load_select_agree(dcp_comm *comm, int status, const dcp_load_options *options, bool in_flight,
                      comm_vote *v, dcp_error *err);

/* Not collective. Checks options and state against the checkpoint. `out` is freed by the caller
 * with load_select_free, even after a failure. */
int load_select_tensors(const dcp_checkpoint *ckpt, const dcp_state *state,
                        const dcp_load_options *options, load_selection *out, dcp_error *err);

/* Removes the tensors that the checkpoint lacks from the selection, and reports each of them to
 * options->on_missing. */
void load_select_drop_missing(load_selection *s, const dcp_load_options *options);

void load_select_free(load_selection *s);
