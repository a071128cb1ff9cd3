/* Fully sharded computation of a model: a unit's parameters are gathered right before a stage needs
 * them, the next unit's while this one computes, and its gradients are summed into their owners'
 * shards right after its backward. The root unit stays gathered during a step.
 *
 * Memory of a rank beside the storage, in units (B the largest block, R the root, M the larger of
 * both): 2 R for the root and its gradients, 2 B for a block and its gradients, M for the unit on
 * its way, M for the shards that a reduction receives. On one rank the storage itself is the
 * gathered model, and only R + B for gradients are needed. */
#ifndef TRAINER_FSDP_FSDP_H
#define TRAINER_FSDP_FSDP_H

#include <mpi.h>

#include "../models/model.h"
#include "../timeline/timeline.h"
#include "kernels/kernels.h"
#include "layout.h"

typedef struct fsdp fsdp;

typedef struct fsdp_options {
    uint64_t leaves; /* of a step, all ranks together */
    int prefetch;    /* 0: gather a unit only when it is needed */
    timeline *tl;    /* is told of all work; borrowed; may be NULL */
} fsdp_options;

/* Which parameters of the model this rank holds. frozen: list of globs of names. DCP_ERR_ARG: one
 * of them matches no parameter, or together they match all. */
int fsdp_layout_of_model(const model *m, const json_t *frozen, int rank, int world,
                         fsdp_layout **out, dcp_error *err);

/* params, grads: this rank's storage, [layout->shard_elems] and [layout->grad_elems]. All pointers
 * are borrowed. Not collective. */
int fsdp_create(const model *m, const fsdp_layout *layout, kernels *k, MPI_Comm comm,
                const fsdp_options *options, float *params, float *grads, fsdp **out,
                dcp_error *err);
void fsdp_destroy(fsdp *f);

uint64_t fsdp_micro_steps(const fsdp *f);
/* Memory of partial sums, needed where a rank has more than one leaf. */
uint64_t fsdp_partial_bytes(const fsdp *f);
/* Memory of all other buffers. */
uint64_t fsdp_buffer_bytes(const fsdp *f);

/* Collective: gathers the root's parameters, as the storage now holds them. */
void fsdp_step_begin(fsdp *f);
/* Collective: computes this rank's leaf of micro-step `micro`, whose batch is set in `run`; NULL
 * where the rank has none. After the last micro-step `grads` holds the sums over all leaves. */
void fsdp_micro_step(fsdp *f, uint64_t micro, model_run *run);
/* Collective, after fsdp_step_begin: this rank's leaf forwards alone, in `run`; NULL where it has
 * none. */
void fsdp_evaluate(fsdp *f, model_run *run);
/* Lets the unit that is on its way proceed; for model_run_set_poll. f: an fsdp. */
void fsdp_poll(void *f);

#endif
