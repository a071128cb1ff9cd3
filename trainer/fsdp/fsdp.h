/* Sharded computation of a model. A unit's parameters are gathered before a stage needs them, while
 * another one computes. Its gradients are summed into their owners' shards while the next one
 * computes. fsdp_strategy says how, fsdp_plan_sizes which buffers that takes. The root unit stays
 * gathered during a step. Where one rank's shard is all of the state, the storage itself is the
 * gathered model, unless it is offloaded to the host. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <dcp/error.h>

typedef struct fsdp fsdp;
typedef struct fsdp_mesh fsdp_mesh;
typedef struct fsdp_plan fsdp_plan;
typedef struct fsdp_transport fsdp_transport;
typedef struct kernels kernels;
typedef struct model model;
typedef struct model_run model_run;
typedef struct timeline timeline;

/* How ranks reach each other. */
typedef struct fsdp_ways {
    const fsdp_mesh *mesh;
    fsdp_transport *transport;
    void *shared; /* [fsdp_gather_shared_bytes], as gather_shared.h says; used where
                     plan->is_shared: then it also holds params, if they are stored in place */
} fsdp_ways;

/* plan: of a layout of the model; copied. params, grads: this rank's storage, [layout->param_elems]
 * and [layout->grad_elems]. tl: is told of all work; may be NULL. All pointers are borrowed. Not
 * collective. */
int fsdp_create(const model *m, const fsdp_plan *plan, const fsdp_ways *ways, kernels *k,
                timeline *tl, float *params, float *grads, fsdp **out, dcp_error *err);
void fsdp_destroy(fsdp *f);

uint64_t fsdp_micro_steps(const fsdp *f);
/* The micro-batch that this rank computes in a micro-step; plan->micro_batches or more where it has
 * none.
 */
uint64_t fsdp_own_micro_batch(const fsdp *f, uint64_t micro);
/* Bytes that this rank has sent for gathers and reductions since the creation. */
uint64_t fsdp_sent_bytes(const fsdp *f);
/* The part of them that went to other groups of ranks that hold the state. */
uint64_t fsdp_sent_across_bytes(const fsdp *f);

/* Collective: gathers the root's parameters, as the storage now holds them. */
void fsdp_step_begin(fsdp *f);
/* Collective: computes this rank's micro-batch of micro-step `micro`, whose batch is set in `run`;
 * NULL where the rank has none. After the last micro-step `grads` holds the sums over all
 * micro-batches. Parameters may be updated once all ranks have come that far: they may read this
 * rank's. */
void fsdp_micro_step(fsdp *f, uint64_t micro, model_run *run);
/* Collective, after fsdp_step_begin: this rank's micro-batch forwards alone, in `run`; NULL where
 * it has none. */
void fsdp_evaluate(fsdp *f, model_run *run);
/* done(ctx, unit) is called each time that this rank has read its stored parameters of a unit and
 * will not need them soon. */
void fsdp_set_done(fsdp *f, void (*done)(void *ctx, size_t unit), void *ctx);
/* Lets units that are in flight proceed; for model_run_set_poll. f: an fsdp. */
void fsdp_poll(void *f);
