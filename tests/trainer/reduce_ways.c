#include "reduce_ways.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fsdp/gather.h"
#include "fsdp/reduce.h"
#include "support/check.h"

enum { UNITS = 4, MOST_LEAVES = 13, MOST_ELEMS = 1 << 14 };
static const model_param params[] = {
    {.name = "root.embedding", .ndim = 2, .shape = {11, 5}},
    {.name = "root.norm", .ndim = 1, .shape = {7}},
    {.name = "block.1.wide", .ndim = 2, .shape = {2, 33}},
    {.name = "block.1.frozen", .ndim = 2, .shape = {9, 4}, .frozen = 1},
    {.name = "block.1.cube", .ndim = 3, .shape = {6, 3, 2}},
    {.name = "block.1.scalar", .ndim = 0},
    {.name = "block.2.frozen", .ndim = 2, .shape = {300, 3}, .frozen = 1},
    {.name = "block.3.one", .ndim = 1, .shape = {1}},
    {.name = "block.3.square", .ndim = 2, .shape = {17, 17}},
};
static const size_t n_params[UNITS] = {2, 4, 1, 2};

/* A leaf's gradient: of many magnitudes, so that another order of addition gives other bits. */
static float gradient(uint64_t leaf, size_t unit, size_t i) {
    const uint64_t h = (leaf * 31 + unit) * 1000003 + i * 7919 + 12345;
    const uint64_t mixed = (h * 6364136223846793005u) ^ (h >> 7);
    const float value = (float)(mixed >> 40) / 16777216.0f - 0.5f;
    return value * (float)(1 << (mixed % 24));
}

/* Leaves first ... end - 1 of one element: blocks of the size at `sizes`, one after another, each
 * of blocks of the next size. */
static float row(const uint64_t *sizes, uint64_t first, uint64_t end, size_t unit, size_t i) {
    float sum = 0;
    if (end - first == 1) return gradient(first, unit, i);
    for (uint64_t at = first; at < end; at += *sizes) {
        const uint64_t stop = at + *sizes < end ? at + *sizes : end;
        const float part = row(sizes + 1, at, stop, unit, i);
        sum = at == first ? part : sum + part;
    }
    return sum;
}

static float reference(uint64_t leaves, size_t unit, size_t i) {
    const fsdp_sum_order o = fsdp_sum_order_of(leaves);
    return row((const uint64_t[]){o.large, o.small, 1}, 0, leaves, unit, i);
}

static void check_sum(float sum, uint64_t leaves, size_t unit, uint64_t i, int ring) {
    const float want = reference(leaves, unit, i);
    float size = 0;
    for (uint64_t leaf = 0; leaf < leaves; leaf++) size += fabsf(gradient(leaf, unit, i));
    /* in any order each of two sums is off by a rounding, 2^-24, of all that went in, a leaf */
    CHECK(ring ? fabsf(sum - want) <= 2 * 0x1p-24f * (float)leaves * size
               : memcmp(&want, &sum, sizeof want) == 0);
}

static void check_shards(const fsdp_layout *layout, const float *grads, uint64_t leaves, int ring) {
    for (size_t u = 0; u < layout->n; u++)
        for (size_t p = 0; p < layout->units[u].n; p++) {
            const fsdp_param *param = &layout->units[u].params[p];
            const uint64_t first = param->box.start[0] * param->row_elems;
            for (uint64_t i = 0; i < param->elems && !param->info.frozen; i++)
                check_sum(grads[param->grad_at + i], leaves, u, param->whole_at + first + i, ring);
        }
}

static float *take(kernels *k, uint64_t n) {
    float *memory = k->alloc(k, (n + 1) * sizeof *memory);
    CHECK(memory);
    return memory;
}

/* The first n, as they are after what the kernels were given before. */
static void put(kernels *k, float *memory, const float *from, uint64_t n) {
    k->upload(k, memory, from, n * sizeof *memory);
}

static void spoil(kernels *k, float *memory, uint64_t n) {
    static float nothing[MOST_ELEMS];
    for (uint64_t i = 0; i < n; i++) nothing[i] = NAN;
    put(k, memory, nothing, n);
}

/* The transport under test, and what it was told to send to other groups. */
static fsdp_transport counted;
static const fsdp_layout *counted_layout;
static uint64_t asked_across;
static const uint64_t *counted_across; /* that, or what the transport counts */

static int is_other_group(fsdp_group group, int i) {
    const int row = counted_layout->rank / counted_layout->shards;
    if (group == FSDP_WORLD) return i / counted_layout->shards != row;
    return group == FSDP_REPLICAS && i != row;
}

static int ranks_in(fsdp_group group) {
    const int shards = counted_layout->shards, world = counted_layout->world;
    if (group == FSDP_WORLD) return world;
    return group == FSDP_SHARDS ? shards : world / shards;
}

static void count_exchange(fsdp_transport *t, fsdp_group group, fsdp_segments from,
                           fsdp_segments to, fsdp_transfer *out) {
    for (int i = 0; i < ranks_in(group); i++)
        if (is_other_group(group, i)) asked_across += 4 * (uint64_t)from.counts[i];
    counted.exchange(t, group, from, to, out);
}

static void count_gather(fsdp_transport *t, fsdp_group group, kernels_type type, const void *own,
                         fsdp_segments to, fsdp_transfer *out) {
    const int row = counted_layout->rank / counted_layout->shards;
    for (int i = 0; i < ranks_in(group); i++)
        if (is_other_group(group, i)) asked_across += 4 * (uint64_t)to.counts[row];
    CHECK(type == KERNELS_F32 && group != FSDP_WORLD);
    counted.gather(t, group, type, own, to, out);
}

/* A step of `overlap`: each unit is in flight until the next one is. `whole` is free again as soon
 * as it is, unless there is no scratch. A single rank's first leaf then begins in the storage. */
static void reduce_step(fsdp_reduce *r, const fsdp_plan *plan, int overlap, kernels *k,
                        float *grads, float *whole, float *scratch) {
    static float made[MOST_ELEMS];
    const fsdp_layout *layout = plan->layout;
    const fsdp_micro_batches leaves = fsdp_plan_micro_batches(plan);
    const int needs_scratch = layout->shards > 1 || overlap;
    for (uint64_t micro = 0; micro < fsdp_micro_batches_steps(&leaves); micro++) {
        const uint64_t leaf = fsdp_micro_batch_of(&leaves, layout->rank, micro);
        const int at_home = overlap && layout->world == 1 && micro == 0;
        for (size_t u = layout->n; u-- > 0;) {
            const uint64_t n = layout->units[u].whole_grad_elems;
            float *at = at_home ? grads + layout->units[u].grad_at : whole;
            spoil(k, at, n);
            for (uint64_t i = 0; i < n; i++) made[i] = gradient(leaf, u, i);
            if (leaf < leaves.n) put(k, at, made, n);
            fsdp_reduce_start(r, u, micro, at, needs_scratch ? scratch : NULL);
            fsdp_reduce_poll(r);
            if (!overlap) fsdp_reduce_finish(r);
        }
        spoil(k, whole, MOST_ELEMS);
        fsdp_reduce_finish(r);
        spoil(k, scratch, MOST_ELEMS);
    }
}

/* Where a group's micro-batches are one block of the order, all ranks together send a shard's bytes
 * across twice but for their own, as a hierarchical all-reduce does. */
static void check_hierarchical(const fsdp_plan *plan, uint64_t across) {
    const fsdp_layout *layout = plan->layout;
    const fsdp_sum_order order = fsdp_sum_order_of(plan->micro_batches);
    const uint64_t world = (uint64_t)layout->world, groups = world / (uint64_t)layout->shards;
    const uint64_t of_group = plan->micro_batches / groups;
    if (layout->shards == 1 || groups == 1 || plan->micro_batches % world) return;
    if (of_group != order.large && of_group != order.small) return;
    uint64_t elems = 0, all = 0;
    for (size_t u = 0; u < layout->n; u++) elems += layout->units[u].gathered_grad_elems;
    MPI_Allreduce(&across, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    CHECK(all == 2 * (groups - 1) * elems * sizeof(float));
}

/* Beside the gradients themselves two partial sums are kept on one rank and three on several, each
 * as large as the gradients. */
static void check_kept(const fsdp_plan *plan) {
    uint64_t elems = 0;
    for (size_t u = 0; u < plan->layout->n; u++) elems += plan->layout->units[u].whole_grad_elems;
    const uint64_t most = (plan->layout->world == 1 ? 2 : 3) * elems * sizeof(float);
    CHECK(fsdp_plan_memory(plan).partial <= most);
}

static void check_sent(const fsdp_plan *plan, const fsdp_reduce *r, uint64_t across,
                       uint64_t steps) {
    const fsdp_traffic planned = fsdp_plan_traffic(plan);
    CHECK(fsdp_reduce_sent_bytes(r) == steps * planned.reductions);
    CHECK(fsdp_reduce_across_bytes(r) == steps * planned.across);
    if (plan->strategy.ring) return;
    CHECK(across == steps * planned.across);
    check_hierarchical(plan, across / steps);
}

/* What units' parameters are gathered from stays within the group. */
static void gather_units(const fsdp_plan *plan, fsdp_transport *transport, kernels *k) {
    const fsdp_layout *layout = plan->layout;
    const uint64_t before = *counted_across;
    float *stored = take(k, layout->param_elems);
    const fsdp_gather_of of = {.layout = layout, .params = stored, .k = k};
    fsdp_gather *gather;
    k->zero(k, stored, layout->param_elems);
    CHECK(fsdp_gather_by_messages(plan, transport, &of, &gather, NULL) == DCP_OK);
    for (size_t u = 0; u < layout->n; u++) {
        gather->start(gather, u);
        gather->finish(gather);
    }
    CHECK(*counted_across == before);
    CHECK(k->sync(k) == NULL);
    gather->destroy(gather);
    k->free(k, stored);
}

static void reduce_steps(const fsdp_plan *plan, fsdp_transport *transport, kernels *k) {
    enum { STEPS = 2 }; /* the counters are empty again after a step */
    const fsdp_layout *layout = plan->layout;
    float *grads = take(k, layout->grad_elems), *whole = take(k, MOST_ELEMS);
    float *scratch = take(k, MOST_ELEMS), *sums = calloc(layout->grad_elems + 1, sizeof *sums);
    fsdp_reduce *r;
    CHECK(sums);
    k->zero(k, grads, layout->grad_elems);
    CHECK(fsdp_reduce_create(plan, transport, k, NULL, grads, &r, NULL) == DCP_OK);
    const uint64_t before = *counted_across;
    for (int step = 0; step < STEPS; step++) {
        reduce_step(r, plan, step == 0, k, grads, whole, scratch);
        k->download(k, sums, grads, layout->grad_elems * sizeof *sums);
        check_shards(layout, sums, plan->micro_batches, plan->strategy.ring);
    }
    check_sent(plan, r, *counted_across - before, STEPS);
    if (layout->shards > 1) gather_units(plan, transport, k);
    fsdp_reduce_destroy(r);
    free(sums);
    k->free(k, scratch);
    k->free(k, whole);
    k->free(k, grads);
}

void reduce_in_groups(int rank, int world, int replicas, const fsdp_transport *transport,
                      kernels *k, const uint64_t *between_hosts) {
    fsdp_transport counting = counted = *transport;
    fsdp_layout *layout;
    CHECK(fsdp_layout_create(params, n_params, UNITS, rank, world, replicas, 0, &layout, NULL) ==
          DCP_OK);
    for (size_t u = 0; u < UNITS; u++) CHECK(layout->units[u].gathered_elems <= MOST_ELEMS);
    counted_layout = layout;
    counted_across = between_hosts ? between_hosts : &asked_across;
    counting.exchange = count_exchange;
    counting.gather = count_gather;
    for (int way = 0; way < 4; way++) {
        const uint64_t by = way == 0 && replicas == 1 ? 1 : 4;
        fsdp_plan plan = {.layout = layout};
        plan.strategy =
            (fsdp_strategy){.replicas = replicas, .local_sums = way & 1, .ring = way >> 1};
        for (uint64_t leaves = 1; leaves <= MOST_LEAVES; leaves += by) {
            plan.micro_batches = leaves;
            reduce_steps(&plan, &counting, k);
        }
        const uint64_t even[] = {2 * (uint64_t)world, 24, 32}; /* as many on each rank */
        for (size_t i = 0; i < sizeof even / sizeof *even; i++) {
            plan.micro_batches = even[i];
            reduce_steps(&plan, &counting, k);
        }
        for (plan.micro_batches = 1; plan.micro_batches <= 4096;
             plan.micro_batches += 1 + plan.micro_batches / 8)
            check_kept(&plan);
    }
    fsdp_layout_destroy(layout);
}
