/* Optimizers, and learning rates over a run. */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include <dcp/tensor.h>

#include "config/config.h"
#include "fsdp/shard_layout.h"
#include "kernels/kernels.h"

/* Learning rates over a run. */

/* The rate of update `step`, from 1. Warm-up reaches lr at its last step: it rises linearly, or as
 * DeepSpeed's with the logarithm of the step, from 0 at step 1. The decays reach lr * min_lr_ratio
 * at max_steps and stay there: linear, cosine   from the end of the warm-up wsd linear, over the
 * last decay_ratio of max_steps */
double optim_schedule_lr(const config *c, uint64_t step);

/* Optimizers: a table with a row for each, and one update of the parameters that a rank holds.
 * Nothing else in the trainer knows which optimizers there are, or what they keep. */

/* What an optimizer keeps of each trained parameter: a tensor of the parameter's shape, zero before
 * the first update, and saved as /optimizer/<name>/<the parameter's name>. */
typedef struct optim_slot {
    const char *name;
    dcp_dtype dtype;
} optim_slot;

/* A row of the table. */
typedef struct optim_type {
    const char *name; /* optimizer.type of the configuration */
    kernels_rule rule;
    size_t n_slots;
    optim_slot slots[KERNELS_MOST_SLOTS]; /* in the order in which the rule takes them */
    /* Fills in what the rule is told, from optimizer.params, which has all of the optimizer's keys.
     * DCP_ERR_ARG: they contradict each other. */
    int (*read)(const json_t *params, kernels_update *out, dcp_error *err);
} optim_type;

/* The row of that name; the configuration has checked that there is one. */
const optim_type *optim_type_find(const char *name);
/* Bytes of one element of all slots together. */
uint64_t optim_element_bytes(const optim_type *type);

typedef struct optim optim;

/* Which parameters decay follows from the configuration's no_decay. Borrows k. DCP_ERR_ARG: a glob
 * of it matches no parameter, or as optim_type's read. */
int optim_create(const config *c, const fsdp_layout *layout, kernels *k, optim **out,
                 dcp_error *err);
void optim_destroy(optim *o);

/* Where a rank's parameters, their gradients and the slots stand, laid out as fsdp_layout says. */
typedef struct optim_memory {
    const int64_t *since; /* [params of the layout] the step at which its slots were zero */
    float *params;
    const float *grads;
    void *slots[KERNELS_MOST_SLOTS];
    /* NULL, or called for memory that the update is done with: it then works in small pieces. */
    void (*release)(void *ctx, const void *from, uint64_t bytes);
    void *ctx;
} optim_memory;

/* The update that makes step `step`, from 1, of a parameter its update number step - since, as
 * PyTorch counts them. Frozen parameters are left alone. Gradients are read times `grad_scale`. */
void optim_step(const optim *o, const optim_memory *m, uint64_t step, double lr, double grad_scale);
