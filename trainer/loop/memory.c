#include "memory.h"

/* Measured on Debian 12, with one rank and with four on a host. */
static const uint64_t program_bytes = (uint64_t)34 << 20;
static const uint64_t save_buffers = (uint64_t)16 << 20; /* dcp/save.h */

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

static uint64_t sample_bytes(const model *m, uint64_t sequence) {
    const sample_shape s = model_sample(m, sequence);
    return 4 * (s.tokens + sample_values(&s) + s.targets);
}

int memory_predict(const config *c, const model *m, const fsdp_plan *plan, uint64_t sequence,
                   memory *out, dcp_error *err) {
    const fsdp_memory shards = fsdp_plan_memory(plan);
    const fsdp_leaves leaves = fsdp_plan_leaves(plan);
    const uint64_t params = plan->layout->param_elems * sizeof(float);
    const uint64_t grads = plan->layout->grad_elems * sizeof(float);
    const uint64_t saved = params + 2 * grads;
    *out =
        (memory){.params = plan->offloads ? 0 : params,
                 .grads = grads,
                 .moments = plan->offloads ? 0 : 2 * grads,
                 .offloaded = shards.offloaded,
                 .units = shards.units,
                 .shared = shards.shared,
                 .partial = shards.partial,
                 .samples = fsdp_leaves_micro_steps(&leaves) * c->micro * sample_bytes(m, sequence),
                 .buffers = least(save_buffers, saved),
                 .program = program_bytes};
    if (c->async && c->staging_bytes > save_buffers)
        out->staging = least(c->staging_bytes, saved) - out->buffers;
    return model_run_measure(m, c->micro, sequence, &out->activations, err);
}

uint64_t memory_sum(const memory *m) {
    return m->params + m->grads + m->moments + m->units + m->activations + m->partial + m->samples +
           m->buffers + m->program;
}
