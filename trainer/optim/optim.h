/* Optimizers, and learning rates over a run. */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include <dcp/tensor.h>

#include "config/config.h"
#include "fsdp/shard_layout.h"
#include "kernels/kernels.h"

/* The learning rate of update `step`, counted from 1. The warm-up is linear in the step or, as in
 * DeepSpeed, in the logarithm of the step; the latter begins with 0 at step 1. The warm-up reaches
 * lr at its last step. The decays reach lr * min_lr_ratio at max_steps and stay there:
 *   linear, cosine  from the end of the warm-up
 *   wsd             linear, over the last decay_ratio of max_steps */
double optim_schedule_lr(const config *c, uint64_t step);

/* Optimizers: a table with a row for each, and an update of the parameters that a rank holds.
 * Nothing else in the trainer knows which optimizers exist, or what they store. */

/* What an optimizer stores for each trained parameter: a tensor of the parameter's shape, zero
 * before the first update, and saved as /optimizer/<name>/<the parameter's name>. */
typedef struct optim_slot {
    const char *name;
    dcp_dtype dtype;
} optim_slot;

/* A row of the table. */
typedef struct optim_type {
    const char *name; /* optimizer.type of the configuration */
    kernels_rule rule;
    size_t n_slots;
    optim_slot slots[KERNELS_MAX_SLOTS]; /* in the order in which the rule expects them */
    /* Fills in the rule's options from optimizer.params, which has all of the optimizer's keys.
     * DCP_ERR_ARG: they contradict each other. */
    int (*read)(const json_t *params, kernels_update *out, dcp_error *err);
} optim_type;

/* The row for the optimizer `name`. The configuration has checked that it exists. */
const optim_type *optim_type_find(const char *name);
/* Returns the bytes that all slots together need per element of a parameter. */
uint64_t optim_element_bytes(const optim_type *type);

typedef struct optim optim;

/* The configuration's no_decay determines which parameters decay. Borrows k. DCP_ERR_ARG: a glob of
 * no_decay matches no parameter, or the optimizer's options contradict each other. */
int optim_create(const config *c, const fsdp_layout *layout, kernels *k, optim **out,
                 dcp_error *err);
void optim_destroy(optim *o);

/* A rank's parameters, their gradients and the slots, laid out as in fsdp_layout. */
typedef struct optim_memory {
    const int64_t *since; /* [params of the layout] the step at which a parameter's slots were 0 */
    float *params;
    const float *grads;
    void *slots[KERNELS_MAX_SLOTS];
    /* Called for each range of memory as soon as the update no longer needs it. May be NULL;
     * otherwise the update works in small pieces. */
    void (*release)(void *ctx, const void *from, uint64_t bytes);
    void *ctx;
} optim_memory;

/* Does update number `step`, counted from 1. The bias correction uses the number of updates since a
 * parameter's `since`, as in PyTorch. Frozen parameters do not change. Gradients are multiplied by
 * `grad_scale`. */
void optim_step(const optim *o, const optim_memory *m, uint64_t step, double lr, double grad_scale);
