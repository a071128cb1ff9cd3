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
    uint64_t epoch_samples, sequence, fingerprint; /* as in meta_data */
    const json_t *provenance; /* from state_provenance_gather, plus the evaluation data */
    MPI_Comm comm;
    dcp_comm *dcp;     /* over the same ranks */
    dcp_tiers *stores; /* NULL for state_resume_preview */
} resume_from;

/* Fails because checkpoint.dir or a store cannot be used, for the reason `why`. Returns `status`,
 * but DCP_ERR_ARG instead of DCP_ERR_IO if this user may not write there: then the directory is
 * wrong, and no disk has failed. */
int state_resume_fail_directory(const config *c, int status, const dcp_error *why, dcp_error *err);

typedef enum state_own {
    STATE_OWN_NONE,
    STATE_OWN_LAUNCH, /* saved by ranks that this dcp-run has started */
    /* Saved by a run of the same configuration, which had to continue from the step that
     * checkpoint.resume names, as this run has to, or which was requeued by Slurm. */
    STATE_OWN_CONFIG,
} state_own;

/* Collective. Finds out whether the newest step of all stores is this run's own. Then the run has
 * to continue from it, whatever checkpoint.resume says: repeating that choice would end in the same
 * steps, and a job that is requeued again and again would never finish. Fails if that cannot be
 * found out. */
int state_resume_find_own(const config *c, dcp_comm *dcp, MPI_Comm comm, state_own *found,
                          dcp_error *err);

/* Collective. Finds out whether the run is going to resume from a checkpoint. DCP_ERR_STATE:
 * checkpoint.resume is `never`, a store holds steps, and overwrite is not set. */
int state_resume_expected(const config *c, dcp_comm *dcp, int *expected, dcp_error *err);

/* Collective. Fills the state as checkpoint.resume and init specify, informs the stores where the
 * run continues, and reports on rank 0 what was done. DCP_ERR_CORRUPT: nothing intact is left.
 * DCP_ERR_MISMATCH: the checkpoint is another model's. */
int state_resume(const resume_from *from, train_state *s, dcp_error *err);

/* Collective. Reports on rank 0 where state_resume would start, from what can be known without
 * reading tensors. Returns the same errors as state_resume. */
int state_resume_preview(const resume_from *from, dcp_error *err);
