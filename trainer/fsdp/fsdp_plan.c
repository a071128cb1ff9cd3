#include "fsdp/fsdp_plan.h"

#include <stdbool.h>

enum { ROOT = 0 };

static uint64_t most(uint64_t a, uint64_t b) { return a > b ? a : b; }
static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

static bool is_cut(const fsdp_plan *plan) { return plan->layout->shards > 1; }
static bool gathers(const fsdp_plan *plan) { return is_cut(plan) || plan->is_on_host; }

bool fsdp_plan_is_hybrid(const fsdp_plan *plan) {
    return fsdp_plan_micro_batches(plan).group < plan->layout->world;
}

/* If each rank holds the whole state, all ranks form one group. */
fsdp_micro_batches fsdp_plan_micro_batches(const fsdp_plan *plan) {
    const fsdp_layout *layout = plan->layout;
    const fsdp_sum_strategy s = {.group = is_cut(plan) ? layout->shards : layout->world,
                                 .local = plan->strategy.local_sums,
                                 .ring = plan->strategy.ring};
    return fsdp_micro_batches_of(plan->micro_batches, layout->world, s);
}

size_t fsdp_plan_gathers(const fsdp_plan *plan, uint64_t micro) {
    const size_t blocks = plan->layout->n - 1;
    if (!gathers(plan) || blocks == 0) return 0;
    if (plan->strategy.keep_params) return micro == 0 ? blocks : 0;
    return 2 * blocks - 1;
}

size_t fsdp_plan_gather(const fsdp_plan *plan, size_t i) {
    const size_t blocks = plan->layout->n - 1;
    return i < blocks ? 1 + i : 2 * blocks - 1 - i;
}

/* Computes the sizes of the buffers for one micro-batch's gradients. A single rank computes the
 * gradients of its first micro-batch in its storage, which receives the sum, so they need no
 * buffer. */
static void size_gradients(const fsdp_plan *plan, fsdp_sizes *s) {
    const fsdp_layout *layout = plan->layout;
    if (layout->world == 1 && plan->micro_batches == 1) return;
    for (size_t u = 0; u < layout->n; u++) {
        const uint64_t whole = layout->units[u].whole_grad_elems;
        if (u == ROOT)
            s->root_grads = whole;
        else
            s->block_grads = most(s->block_grads, whole);
    }
}

static void size_gathers(const fsdp_plan *plan, fsdp_sizes *s) {
    const fsdp_layout *layout = plan->layout;
    const bool keep = plan->strategy.keep_params;
    const uint64_t blocks = layout->n - 1;
    const uint64_t ahead = least(least(plan->strategy.prefetch, blocks), FSDP_MAX_AHEAD);
    s->n_flights = ahead ? ahead : 1;
    s->n_staging = plan->is_shared ? 0 : s->n_flights;
    s->n_blocks = keep ? 0 : 1;
    if (plan->is_shared && !keep) s->n_blocks += ahead; /* in flight, in their final places */
    for (size_t u = 0; u < layout->n; u++) {
        const fsdp_unit *unit = &layout->units[u];
        s->first_staging = most(s->first_staging, unit->gathered_elems);
        if (u == ROOT) {
            s->root = unit->whole_elems;
        } else {
            s->staging = most(s->staging, unit->gathered_elems);
            s->block = most(s->block, unit->whole_elems);
            s->kept_blocks += unit->whole_elems;
        }
    }
    *(keep ? &s->block : &s->kept_blocks) = 0;
    if (layout->in_place) s->root = s->kept_blocks = 0;
}

/* Computes the size of the buffer for gradients in flight. Gradients that are sent while the next
 * unit computes need a buffer that nothing else uses. With messages, the root's gradients are sent
 * from a staging buffer if they have to be split. A block's gradients replace its parameters if
 * nothing computes meanwhile. */
static void size_outgoing(const fsdp_plan *plan, fsdp_sizes *s) {
    const fsdp_layout *layout = plan->layout;
    const bool splits = is_cut(plan), overlaps = plan->strategy.overlap;
    uint64_t elems = 0;
    for (size_t u = splits && plan->is_shared ? ROOT : 1; u < layout->n; u++)
        elems = most(elems, layout->units[u].gathered_grad_elems);
    if (splits && !overlaps && !plan->is_shared && !plan->strategy.keep_params)
        s->block = most(s->block, elems);
    else if (splits || (overlaps && !plan->strategy.ring))
        s->outgoing = elems;
}

static uint64_t piece_elems(const fsdp_layout *layout, size_t unit) {
    return (uint64_t)fsdp_grad_range(layout, unit, layout->rank).count;
}

static uint64_t shard_elems(const fsdp_layout *layout, size_t unit) {
    return (uint64_t)layout->units[unit].grad_counts[layout->shard];
}

/* The number of elements that this rank adds up when ranks have sent each other gradients after a
 * micro-step. */
static uint64_t added_elems(const fsdp_plan *plan, size_t unit) {
    return fsdp_plan_is_hybrid(plan) ? shard_elems(plan->layout, unit)
                                     : piece_elems(plan->layout, unit);
}

/* Computes the largest number of elements that this rank receives in one reduction. */
static void size_received(const fsdp_plan *plan, fsdp_sizes *s) {
    const fsdp_layout *layout = plan->layout;
    const fsdp_micro_batches batches = fsdp_plan_micro_batches(plan);
    const uint64_t senders = fsdp_micro_batches_senders(&batches, layout->rank, batches.block - 1);
    const bool in_place = plan->strategy.ring && !is_cut(plan);
    for (size_t u = 0; u < layout->n; u++) {
        const uint64_t n =
            plan->strategy.ring ? shard_elems(layout, u) : senders * added_elems(plan, u);
        if (!in_place) s->received = most(s->received, n);
    }
}

static uint64_t parts_of_run(const fsdp_micro_batches *batches, int rank, uint64_t micro) {
    const fsdp_part run = fsdp_micro_batches_run(batches, rank, micro);
    return fsdp_sum_order_parts(&batches->order, run.first, run.first + run.n);
}

/* Computes the sizes for the run that consists of the most sums. */
static void size_across(const fsdp_plan *plan, fsdp_sizes *s) {
    const fsdp_layout *layout = plan->layout;
    const fsdp_micro_batches batches = fsdp_plan_micro_batches(plan);
    uint64_t own = 0, all = 0;
    for (uint64_t micro = 0; micro < fsdp_micro_batches_steps(&batches); micro++) {
        uint64_t together = 0;
        if (!fsdp_micro_batches_end_run(&batches, micro)) continue;
        for (int r = layout->shard; r < layout->world; r += layout->shards)
            together += parts_of_run(&batches, r, micro);
        own = most(own, parts_of_run(&batches, layout->rank, micro));
        all = most(all, together);
    }
    for (size_t u = 0; u < layout->n; u++) {
        s->outbound = most(s->outbound, own * shard_elems(layout, u));
        s->crossed = most(s->crossed, all * piece_elems(layout, u));
        s->across_sum += piece_elems(layout, u);
    }
    s->n_across_sums = fsdp_micro_batches_stored_across(&batches);
}

/* The first of the sums over micro-steps is stored in the rank's gradients, which receive the final
 * sum, so it needs no other memory. If the rank holds the whole state, the sum of its own
 * micro-batches is stored there instead. */
static void size_sums(const fsdp_plan *plan, fsdp_sizes *s) {
    const fsdp_layout *layout = plan->layout;
    const fsdp_micro_batches batches = fsdp_plan_micro_batches(plan);
    const uint64_t local = fsdp_micro_batches_stored_local(&batches);
    const uint64_t own = fsdp_micro_batches_stored(&batches);
    const bool is_home_taken = local > 0 && !is_cut(plan);
    for (size_t u = 0; u < layout->n; u++) {
        s->own_sum += added_elems(plan, u);
        s->local_sum += layout->units[u].whole_grad_elems;
    }
    s->n_local_sums = is_home_taken ? local - 1 : local;
    if (own > 0 && (!plan->strategy.ring || layout->world == 1))
        s->n_own_sums = is_home_taken ? own : own - 1;
}

fsdp_sizes fsdp_plan_sizes(const fsdp_plan *plan) {
    fsdp_sizes s = {0};
    size_gradients(plan, &s);
    if (gathers(plan)) size_gathers(plan, &s);
    if (plan->layout->world > 1) {
        size_outgoing(plan, &s);
        size_received(plan, &s);
    }
    if (fsdp_plan_is_hybrid(plan)) size_across(plan, &s);
    size_sums(plan, &s);
    return s;
}

fsdp_memory fsdp_plan_memory(const fsdp_plan *plan) {
    const fsdp_layout *layout = plan->layout;
    const fsdp_sizes s = fsdp_plan_sizes(plan);
    const uint64_t staging = s.n_staging ? s.first_staging + (s.n_staging - 1) * s.staging : 0;
    const uint64_t gathered = s.root + s.n_blocks * s.block + s.kept_blocks;
    const uint64_t units = s.root_grads + s.block_grads + gathered + staging + s.outgoing +
                           s.received + s.outbound + s.crossed;
    const uint64_t partial =
        s.n_own_sums * s.own_sum + s.n_local_sums * s.local_sum + s.n_across_sums * s.across_sum;
    const uint64_t grads = layout->grad_elems * sizeof(float);
    const uint64_t params = layout->param_elems * sizeof(float);
    const uint64_t others = params + layout->grad_elems * plan->slot_bytes;
    const uint64_t whole = gathered * sizeof(float) + (layout->in_place ? params : 0);
    return (fsdp_memory){.state = plan->offloads ? grads : grads + others,
                         .offloaded = plan->offloads ? others : 0,
                         .units = units * sizeof(float),
                         .shared = plan->is_shared && is_cut(plan) ? whole : 0,
                         .partial = partial * sizeof(float)};
}

uint64_t fsdp_param_bytes(bool bf16) { return bf16 ? sizeof(uint16_t) : sizeof(float); }

uint64_t fsdp_gather_sends(const fsdp_layout *layout, size_t unit) {
    return (uint64_t)layout->units[unit].counts[layout->shard] * (uint64_t)(layout->shards - 1);
}

uint64_t fsdp_reduce_sends(const fsdp_layout *layout, bool is_hybrid, size_t unit) {
    if (is_hybrid) return fsdp_ring_sends(layout, unit);
    return layout->units[unit].gathered_grad_elems - piece_elems(layout, unit);
}

uint64_t fsdp_reduce_leaves(const fsdp_layout *layout, bool is_hybrid, size_t unit) {
    const int first = layout->rank - layout->shard;
    uint64_t stays = 0;
    if (is_hybrid) return 0;
    for (int r = first; r < first + layout->shards; r++)
        stays += (uint64_t)fsdp_grad_range(layout, unit, r).count;
    return layout->units[unit].gathered_grad_elems - stays;
}

uint64_t fsdp_ring_sends(const fsdp_layout *layout, size_t unit) {
    return layout->units[unit].gathered_grad_elems - shard_elems(layout, unit);
}

uint64_t fsdp_across_sends(const fsdp_layout *layout, size_t unit) {
    return shard_elems(layout, unit) - piece_elems(layout, unit);
}

uint64_t fsdp_broadcast_sends(const fsdp_layout *layout, size_t unit) {
    return piece_elems(layout, unit) * (uint64_t)(layout->world / layout->shards - 1);
}

/* The number of sums that the rank sends in a step. */
static uint64_t own_parts(const fsdp_plan *plan) {
    const fsdp_micro_batches batches = fsdp_plan_micro_batches(plan);
    uint64_t parts = 0;
    for (uint64_t micro = 0; micro < fsdp_micro_batches_steps(&batches); micro++)
        parts += plan->strategy.ring
                     ? (uint64_t)fsdp_micro_batches_are_sent(&batches, micro)
                     : fsdp_micro_batches_part(&batches, plan->layout->rank, micro).n > 0;
    return parts;
}

/* The number of sums that the rank's group sends in a step. */
static uint64_t group_parts(const fsdp_plan *plan) {
    const fsdp_micro_batches batches = fsdp_plan_micro_batches(plan);
    uint64_t parts = 0;
    for (uint64_t micro = 0; micro < fsdp_micro_batches_steps(&batches); micro++)
        if (fsdp_micro_batches_end_run(&batches, micro))
            parts += parts_of_run(&batches, plan->layout->rank, micro);
    return parts;
}

/* The number of elements sent for a step's reductions. *across: the part that leaves the group. */
static uint64_t reduced(const fsdp_plan *plan, uint64_t *across) {
    const fsdp_layout *layout = plan->layout;
    const bool is_hybrid = fsdp_plan_is_hybrid(plan), ring = plan->strategy.ring;
    const uint64_t own = own_parts(plan);
    uint64_t first = 0;
    *across = 0;
    for (size_t u = 0; u < layout->n; u++) {
        const uint64_t spread = fsdp_broadcast_sends(layout, u);
        const uint64_t leaves = ring ? 0 : fsdp_reduce_leaves(layout, is_hybrid, u);
        first +=
            ring ? fsdp_ring_sends(layout, u) : fsdp_reduce_sends(layout, is_hybrid, u) - leaves;
        *across += own * leaves + (ring ? 2 * spread : spread);
        if (is_hybrid) *across += group_parts(plan) * fsdp_across_sends(layout, u);
    }
    return own * first + *across;
}

fsdp_traffic fsdp_plan_traffic(const fsdp_plan *plan) {
    const fsdp_layout *layout = plan->layout;
    const fsdp_micro_batches batches = fsdp_plan_micro_batches(plan);
    fsdp_traffic t = {0};
    if (layout->world == 1) return t;
    uint64_t gathered = fsdp_gather_sends(layout, ROOT);
    for (uint64_t micro = 0; micro < fsdp_micro_batches_steps(&batches); micro++)
        for (size_t i = 0; i < fsdp_plan_gathers(plan, micro); i++)
            gathered += fsdp_gather_sends(layout, fsdp_plan_gather(plan, i));
    t.gathers = gathered * fsdp_param_bytes(plan->strategy.bf16);
    t.reductions = reduced(plan, &t.across) * sizeof(float);
    t.across *= sizeof(float);
    return t;
}
