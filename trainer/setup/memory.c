#include "setup/memory.h"

/* Measured on Debian 12. */
static const uint64_t program_bytes = (uint64_t)36 << 20;
static const uint64_t messages_bytes = (uint64_t)8 << 20; /* of MPI and libdcp between ranks */
/* Of an update, or a save: 16 MiB, and what the kernel maps around each page, 3 to 10 MiB. */
static const uint64_t paged_bytes = (uint64_t)22 << 20;
static const uint64_t save_buffers = (uint64_t)16 << 20; /* dcp/save.h */

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

static uint64_t sample_bytes(const model *m, uint64_t sequence) {
    const sample_shape s = model_sample(m, sequence);
    return 4 * (s.tokens + sample_values(&s) + s.targets);
}

int memory_predict(const config *c, const model *m, const fsdp_plan *plan, uint64_t sequence,
                   memory *out, dcp_error *err) {
    const fsdp_memory shards = fsdp_plan_memory(plan);
    const fsdp_micro_batches leaves = fsdp_plan_micro_batches(plan);
    const uint64_t params = plan->layout->param_elems * sizeof(float);
    const uint64_t grads = plan->layout->grad_elems * sizeof(float);
    const uint64_t slots = plan->layout->grad_elems * plan->slot_bytes;
    const uint64_t shard =
        plan->layout->in_place ? params / (uint64_t)plan->layout->shards : params;
    const uint64_t saved = (shard + slots) / (uint64_t)plan->strategy.replicas;
    const int is_alone = plan->layout->world == 1;
    *out = (memory){.params = plan->offloads ? 0 : params,
                    .grads = grads,
                    .moments = plan->offloads ? 0 : slots,
                    .offloaded = shards.offloaded,
                    .paged = plan->is_apart ? 0 : least(paged_bytes, shards.offloaded),
                    .units = shards.units,
                    .shared = shards.shared,
                    .partial = fsdp_plan_most_partial(plan),
                    .samples =
                        fsdp_micro_batches_steps(&leaves) * c->micro * sample_bytes(m, sequence),
                    .buffers = c->engine == DCP_ENGINE_MPIO ? 0 : least(save_buffers, saved),
                    .program = program_bytes + (is_alone ? 0 : messages_bytes)};
    if (c->async && c->engine != DCP_ENGINE_MPIO && c->staging_bytes > save_buffers)
        out->staging = least(c->staging_bytes, saved) - out->buffers;
    return model_run_measure(m, c->micro, sequence, &out->activations, err);
}

uint64_t memory_sum(const memory *m) {
    return m->params + m->grads + m->moments + m->paged + m->units + m->activations + m->partial +
           m->samples + m->buffers + m->program;
}
