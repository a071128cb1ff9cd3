/* Sums of gradients have the bits of one serial pairwise sum, on any number of ranks and by any
 * strategy but the ring: also where ranks outnumber leaves or rows, and where they divide nothing.
 * What is sent is what was planned. Frozen parameters take no room. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fsdp/reduce.h"
#include "fsdp/transport_mpi.h"
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

/* Leaves [first, first + n) of one element, n a power of two: halves are summed first. */
static float tree(uint64_t first, uint64_t n, size_t unit, size_t i) {
    if (n == 1) return gradient(first, unit, i);
    return tree(first, n / 2, unit, i) + tree(first + n / 2, n / 2, unit, i);
}

static float reference(uint64_t leaves, size_t unit, size_t i) {
    float sum = 0;
    int empty = 1;
    uint64_t end = leaves;
    for (uint64_t n = 1; end > 0; n *= 2) { /* fewest leaves first: they are the last ones */
        if (!(leaves & n)) continue;
        const float part = tree(end - n, n, unit, i);
        sum = empty ? part : sum + part;
        empty = 0;
        end -= n;
    }
    return sum;
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

static float *zeros(uint64_t n) {
    float *memory = calloc(n + 1, sizeof *memory);
    CHECK(memory);
    return memory;
}

static void spoil(float *memory, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) memory[i] = NAN;
}

/* A step of `overlap`: each unit is in flight until the next one is. `whole` is free again as soon
 * as it is, unless there is no scratch. A single rank's first leaf then begins in the storage. */
static void reduce_step(fsdp_reduce *r, const fsdp_plan *plan, int overlap, float *grads,
                        float *whole, float *scratch) {
    const fsdp_layout *layout = plan->layout;
    const fsdp_micro_batches leaves = fsdp_plan_micro_batches(plan);
    const int needs_scratch = layout->shards > 1 || overlap;
    for (uint64_t micro = 0; micro < fsdp_micro_batches_steps(&leaves); micro++) {
        const uint64_t leaf = fsdp_micro_batch_of(&leaves, layout->rank, micro);
        const int at_home = overlap && layout->world == 1 && micro == 0;
        for (size_t u = layout->n; u-- > 0;) {
            const uint64_t n = layout->units[u].whole_grad_elems;
            float *at = at_home ? grads + layout->units[u].grad_at : whole;
            spoil(at, n);
            for (uint64_t i = 0; i < n && leaf < leaves.n; i++) at[i] = gradient(leaf, u, i);
            fsdp_reduce_start(r, u, micro, at, needs_scratch ? scratch : NULL);
            fsdp_reduce_poll(r);
            if (!overlap) fsdp_reduce_finish(r);
        }
        spoil(whole, MOST_ELEMS);
        fsdp_reduce_finish(r);
        spoil(scratch, MOST_ELEMS);
    }
}

static void reduce_steps(const fsdp_plan *plan, fsdp_transport *transport, kernels *k) {
    const fsdp_layout *layout = plan->layout;
    float *grads = zeros(layout->grad_elems), *whole = zeros(MOST_ELEMS);
    float *scratch = zeros(MOST_ELEMS);
    fsdp_reduce *r;
    CHECK(fsdp_reduce_create(plan, transport, k, NULL, grads, &r, NULL) == DCP_OK);
    for (int step = 0; step < 2; step++) { /* twice: the counters are empty again after a step */
        reduce_step(r, plan, step == 0, grads, whole, scratch);
        check_shards(layout, grads, plan->micro_batches, plan->strategy.ring);
    }
    CHECK(fsdp_reduce_sent_bytes(r) == 2 * fsdp_plan_traffic(plan).reductions);
    fsdp_reduce_destroy(r);
    free(scratch);
    free(whole);
    free(grads);
}

/* All ways to add up, in groups of world / replicas ranks. */
static void reduce_in_groups(int rank, int world, int replicas, kernels *k) {
    fsdp_mesh mesh;
    fsdp_layout *layout;
    fsdp_mesh_create(MPI_COMM_WORLD, replicas, &mesh);
    fsdp_transport transport = fsdp_transport_mpi(&mesh);
    CHECK(fsdp_layout_create(params, n_params, UNITS, rank, world, replicas, 0, &layout, NULL) ==
          DCP_OK);
    for (size_t u = 0; u < UNITS; u++) CHECK(layout->units[u].gathered_elems <= MOST_ELEMS);
    for (int way = 0; way < 4; way++) {
        const uint64_t by = way == 0 && replicas == 1 ? 1 : 4;
        for (uint64_t leaves = 1; leaves <= MOST_LEAVES; leaves += by) {
            const fsdp_strategy strategy = {
                .replicas = replicas, .local_sums = way & 1, .ring = way >> 1};
            const fsdp_plan plan = {
                .layout = layout, .strategy = strategy, .micro_batches = leaves};
            reduce_steps(&plan, &transport, k);
        }
    }
    fsdp_layout_destroy(layout);
    fsdp_mesh_free(&mesh);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, world;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    kernels *k;
    CHECK(kernels_open("cpu", &k) == KERNELS_OK);
    for (int replicas = 1; replicas <= world; replicas++)
        if (world % replicas == 0) reduce_in_groups(rank, world, replicas, k);
    kernels_close(k);
    MPI_Finalize();
    return 0;
}
