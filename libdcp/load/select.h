/* Which of a state's tensors a load fills, and from which stored tensors (dcp_load_options). */
#ifndef DCP_LOAD_SELECT_H
#define DCP_LOAD_SELECT_H

#include "core/state_dict.h"
#include "step/checkpoint.h"

typedef struct selection {
    state_tensor **wanted;      /* the state's, sorted by path */
    const step_tensor **stored; /* each one's in the checkpoint; NULL: it lacks it */
    size_t n;
} selection;

/* Collective: all ranks passed the same options. */
int select_agree(dcp_comm *comm, const dcp_load_options *options, dcp_error *err);

/* Not collective. Checks options and state against the checkpoint. `out` is freed by the caller
 * with select_free, also after a failure. */
int select_tensors(const dcp_checkpoint *ckpt, const dcp_state *state,
                   const dcp_load_options *options, selection *out, dcp_error *err);

/* Tells the caller of the tensors that the checkpoint lacks, and leaves them out. */
void select_drop_missing(selection *s, const dcp_load_options *options);

void select_free(selection *s);

#endif
