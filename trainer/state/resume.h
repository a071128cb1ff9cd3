/* Where a run starts: from a checkpoint, from weights, or from random numbers. */
#pragma once

#include <mpi.h>
#include <stdbool.h>

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
    json_t *provenance; /* from state_provenance_gather, plus the evaluation data */
    MPI_Comm comm;
    dcp_comm *dcp;     /* the same ranks as `comm` */
    dcp_tiers *stores; /* NULL for state_resume_preview */
} resume_from;

/* Fails because checkpoint.dir or a store cannot be used; `why` is the reason. Returns `status`,
 * with one exception: DCP_ERR_ARG instead of DCP_ERR_IO if this user may not write there, because
 * then the directory was chosen wrongly, and no disk has failed. */
int state_resume_fail_directory(const config *c, int status, const dcp_error *why, dcp_error *err);

typedef enum state_ownership {
    STATE_OWN_NONE,
    STATE_OWN_LAUNCH, /* saved by ranks that this dcp-run started */
    /* Saved by a run of the same configuration, which may be an earlier start of the same job. Not
     * considered if checkpoint.resume is `never`, unless Slurm has requeued the job. */
    STATE_OWN_CONFIG,
} state_ownership;

/* Collective. Finds out whether the newest step of all stores is this run's own. If so, the run has
 * to continue from that step, even if checkpoint.resume is `never` or names another step: following
 * checkpoint.resume again would compute the same steps again, and a job that is requeued repeatedly
 * would never finish. If the owner of the newest step cannot be determined, the next older step
 * decides. If no step is known to be the run's own, and one cannot be read, the call fails for a
 * job that was requeued or started by dcp-run; otherwise rank 0 warns. */
int state_resume_find_own(const config *c, dcp_comm *dcp, MPI_Comm comm, state_ownership *found,
                          dcp_error *err);

/* Collective. *expected: whether the run is going to resume from a checkpoint. DCP_ERR_STATE:
 * checkpoint.resume is `never`, a store holds steps, and checkpoint.overwrite is not set. */
int state_resume_expected(const config *c, dcp_comm *dcp, bool *expected, dcp_error *err);

/* Collective. Fills the state as checkpoint.resume and init specify, and informs the stores of the
 * step at which the run continues. Rank 0 reports what was done. DCP_ERR_CORRUPT: no intact step is
 * left. DCP_ERR_MISMATCH: the checkpoint belongs to another model. */
int state_resume(const resume_from *from, train_state *s, dcp_error *err);

/* Collective. Rank 0 reports where state_resume would start, as far as that is known without
 * reading tensors. Returns the same errors as state_resume. */
int state_resume_preview(const resume_from *from, dcp_error *err);
