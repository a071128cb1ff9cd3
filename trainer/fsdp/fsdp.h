/* Sharded computation of a model. A unit's parameters are gathered before a stage needs them, while
 * another stage computes. The unit's gradients are summed into their owners' shards while the next
 * unit computes. fsdp_strategy determines how this is done, and fsdp_plan_sizes determines the
 * sizes of the buffers. The root unit stays gathered during a step. If a rank's shard is the whole
 * state, the storage itself is the gathered model, unless it is offloaded to the host. */
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

/* The means by which ranks communicate. */
typedef struct fsdp_ways {
    const fsdp_mesh *mesh;
    fsdp_transport *transport;
    /* [fsdp_gather_shared_bytes], see gather.h. Used if plan->is_shared; also holds params if they
     * are stored in place. */
    void *shared;
} fsdp_ways;

/* plan: made from a layout of the model; copied. params, grads: this rank's storage,
 * [layout->param_elems] and [layout->grad_elems]. tl: records all work; may be NULL. All pointers
 * are borrowed. Not collective. */
int fsdp_create(const model *m, const fsdp_plan *plan, const fsdp_ways *ways, kernels *k,
                timeline *tl, float *params, float *grads, fsdp **out, dcp_error *err);
void fsdp_destroy(fsdp *f);

uint64_t fsdp_micro_steps(const fsdp *f);
/* The micro-batch that this rank computes in a micro-step; plan->micro_batches or more if the rank
 * has none. */
uint64_t fsdp_own_micro_batch(const fsdp *f, uint64_t micro);
/* The number of bytes that this rank has sent for gathers and reductions since `f` was created. */
uint64_t fsdp_sent_bytes(const fsdp *f);
/* The part of fsdp_sent_bytes that went to other groups of ranks that hold the state. */
uint64_t fsdp_sent_across_bytes(const fsdp *f);

/* Collective. Gathers the root's parameters from the storage. */
void fsdp_step_begin(fsdp *f);
/* Collective. Computes this rank's micro-batch of micro-step `micro`. run: contains the
 * micro-batch; NULL if the rank has none. After the last micro-step `grads` holds the sums over all
 * micro-batches. Parameters may be updated only after all ranks have finished the last micro-step,
 * because other ranks may still read this rank's parameters. */
void fsdp_micro_step(fsdp *f, uint64_t micro, model_run *run);
/* Collective, after fsdp_step_begin. Computes only the forward pass. run: contains this rank's
 * micro-batch; NULL if the rank has none. */
void fsdp_evaluate(fsdp *f, model_run *run);
/* done(ctx, unit) is called each time this rank has read its stored parameters of a unit and will
 * not need them soon. */
void fsdp_set_done(fsdp *f, void (*done)(void *ctx, size_t unit), void *ctx);
/* Lets transfers in flight proceed. Can be passed to model_run_set_poll. f: an fsdp. */
void fsdp_poll(void *f);
