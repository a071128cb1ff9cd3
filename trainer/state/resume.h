/* Where a run starts: from a checkpoint, from weights, or from random numbers. */
#pragma once

#include <mpi.h>

#include "config/config.h"
#include "models/model.h"
#include "state/train_state.h"
#include <dcp/tiers.h>

typedef struct resume_from {
    const config *c;
    const model *m;
    const fsdp_layout *layout;
    const optim_type *optimizer;
    uint64_t epoch_samples, sequence, fingerprint; /* as meta_data has them */
    const json_t *provenance; /* state_provenance_gather's, and the evaluation data */
    MPI_Comm comm;
    dcp_comm *dcp;     /* over the same ranks */
    dcp_tiers *stores; /* NULL: for state_resume_preview */
} resume_from;

/* Says that checkpoint.dir, or a store, cannot be used, for the reason `why`. Returns `status`, but
 * DCP_ERR_ARG for DCP_ERR_IO where this user may not write there: that is a wrong directory, and no
 * disk that fails. */
int state_resume_fail_directory(const config *c, int status, const dcp_error *why, dcp_error *err);

typedef enum state_own {
    STATE_OWN_NONE,
    STATE_OWN_LAUNCH, /* ranks that this dcp-run has started have saved it */
    STATE_OWN_CONFIG, /* a run of the same configuration has, which was to go on, as this one is,
                       * from the step that checkpoint.resume names, or was requeued by Slurm */
} state_own;

/* Collective: whether the newest step of all stores is this run's own. Then it has to go on from
 * that one, whatever checkpoint.resume says: to repeat that would end in the same steps, and a job
 * that is requeued again and again would never end. An error where it can't be found out. */
int state_resume_find_own(const config *c, dcp_comm *dcp, MPI_Comm comm, state_own *found,
                          dcp_error *err);

/* Whether the run is going to resume from a checkpoint. DCP_ERR_STATE: checkpoint.resume is
 * `never`, a store holds steps and overwrite is not set. Collective. */
int state_resume_expected(const config *c, dcp_comm *dcp, int *expected, dcp_error *err);

/* Collective: fills the state as checkpoint.resume and init say, tells the stores where the run
 * goes on, and says on rank 0 what was done.
 * DCP_ERR_CORRUPT: nothing intact is left. DCP_ERR_MISMATCH: another model's. */
int state_resume(const resume_from *from, train_state *s, dcp_error *err);

/* Collective: says on rank 0 where resume would start, from what can be known without reading
 * tensors. Errors as resume's. */
int state_resume_preview(const resume_from *from, dcp_error *err);
