/* A gathered unit holds every rank's slices at their places until it is released, for any number of
 * ranks, by messages and in shared memory, whether blocks stay or not and are stored in place, with
 * none, one or several in flight, in fp32 and rounded to bf16, also from memory apart, where a
 * transport may round what it sends by way of memory that is too small for all of it at once. */
#include <stdlib.h>
#include <string.h>

#include "dcp/mpi.h"
#include "fsdp/gather.h"
#include "fsdp/transport.h"
#include "support/check.h"

enum { UNITS = 5, STEPS = 3, ROOT = 0 };
static const model_param params[] = {
    {.name = "root.embedding", .ndim = 2, .shape = {10, 3}},
    {.name = "root.norm", .ndim = 1, .shape = {3}},
    {.name = "block.1.matrix", .ndim = 2, .shape = {5, 20}, .frozen = 1},
    {.name = "block.1.scalar", .ndim = 0},
    {.name = "block.1.vector", .ndim = 1, .shape = {40}},
    {.name = "block.2.wide", .ndim = 2, .shape = {2, 700}},
    {.name = "block.3.cube", .ndim = 3, .shape = {7, 3, 5}},
    {.name = "block.4.vector", .ndim = 1, .shape = {1}},
};
static const size_t n_params[UNITS] = {2, 3, 1, 1, 1};

typedef struct subject {
    const fsdp_plan *plan;
    fsdp_gather *gather;
    kernels *k;
    float *storage;
    size_t step;
    const float *whole[UNITS]; /* NULL: not gathered */
    size_t in_block;           /* ROOT: none */
    size_t started, finished;  /* blocks */
} subject;

static float value(size_t step, size_t unit, size_t param, uint64_t i) {
    return (float)(100000 * step + 1000 * (10 * unit + param) + i) / 7;
}

static void fill_shard(subject *s) {
    const fsdp_layout *layout = s->plan->layout;
    for (size_t u = 0; u < layout->n; u++)
        for (size_t p = 0; p < layout->units[u].n; p++) {
            const fsdp_param *param = &layout->units[u].params[p];
            for (uint64_t i = 0; i < param->elems; i++)
                s->storage[param->param_at + i] =
                    value(s->step, u, p, param->box.start[0] * param->row_elems + i);
        }
}

static float rounded(const subject *s, float x) {
    uint16_t narrow;
    if (!s->plan->strategy.bf16) return x;
    s->k->narrow(s->k, &narrow, &x, 1);
    s->k->widen(s->k, &x, &narrow, 1);
    return x;
}

/* What is stored in place, or did not travel, is the master copy, which the model rounds. */
static float found(const subject *s, float x) {
    return s->plan->layout->in_place || s->plan->layout->shards == 1 ? rounded(s, x) : x;
}

static void check_whole(const subject *s, size_t u) {
    const fsdp_unit *unit = &s->plan->layout->units[u];
    for (size_t p = 0; p < unit->n; p++) {
        const fsdp_param *param = &unit->params[p];
        const uint64_t rows = param->info.ndim ? param->info.shape[0] : 1;
        for (uint64_t i = 0; i < rows * param->row_elems; i++)
            CHECK(found(s, s->whole[u][param->whole_at + i]) ==
                  rounded(s, value(s->step, u, p, i)));
    }
}

/* All that is gathered is still there; ranks look for different times. */
static void check_held(const subject *s) {
    for (int times = 0; times <= s->plan->layout->rank; times++) {
        for (size_t u = 0; u < UNITS; u++)
            if (s->whole[u]) check_whole(s, u);
        s->gather->poll(s->gather);
    }
}

static void drop(subject *s, size_t u) {
    if (s->whole[u] && s->gather->release) s->gather->release(s->gather, u);
    s->whole[u] = NULL;
}

static void start_next(subject *s) {
    s->gather->start(s->gather, fsdp_plan_gather(s->plan, s->started++));
}

static void hold_next(subject *s, size_t n) {
    const size_t unit = fsdp_plan_gather(s->plan, s->finished++);
    if (s->gather->in_flight == 0) start_next(s);
    if (!s->plan->strategy.keep_params) {
        if (s->in_block != ROOT) drop(s, s->in_block);
        s->in_block = unit;
    }
    s->whole[unit] = s->gather->finish(s->gather);
    while (s->started < n && s->gather->in_flight < s->plan->strategy.prefetch &&
           s->gather->in_flight < s->gather->most_in_flight)
        start_next(s);
}

/* As a step of training: the root, then a micro-step's blocks. Returns the elements sent. */
static uint64_t gather_step(subject *s) {
    const size_t n = fsdp_plan_gathers(s->plan, 0);
    uint64_t sent = fsdp_gather_sends(s->plan->layout, ROOT);
    for (size_t u = 0; u < UNITS; u++) drop(s, u);
    s->in_block = ROOT;
    s->started = s->finished = 0;
    s->gather->start(s->gather, ROOT);
    s->whole[ROOT] = s->gather->finish(s->gather);
    for (size_t i = 0; i < n; i++) {
        sent += fsdp_gather_sends(s->plan->layout, fsdp_plan_gather(s->plan, i));
        hold_next(s, n);
        check_held(s);
    }
    CHECK(s->gather->in_flight == 0);
    return sent;
}

static kernels *rounds;
static void narrow(fsdp_transport *t, uint16_t *to, const float *from, size_t n, float *between,
                   size_t room) {
    (void)t;
    for (size_t at = 0, here; at < n; at += here) {
        here = n - at < room ? n - at : room;
        memcpy(between, from + at, here * sizeof *from);
        rounds->narrow_on(rounds, NULL, to + at, between, here);
    }
}

static void gather_steps(fsdp_plan plan, const fsdp_mesh *mesh, kernels *k) {
    fsdp_transport transport = fsdp_transport_mpi(mesh);
    if (plan.is_on_host) transport.narrow = narrow;
    subject s = {.plan = &plan, .k = k};
    const size_t bytes = plan.is_shared ? fsdp_gather_shared_bytes(&plan) : 0;
    void *memory = dcp_host_memory_create(mesh->shards, bytes);
    CHECK(!plan.is_shared == !memory);
    float *own = calloc(plan.layout->param_elems + 1, sizeof *own);
    s.storage = fsdp_gather_shared_params(&plan, memory);
    CHECK(own && !s.storage == !(plan.is_shared && plan.layout->in_place));
    if (!s.storage) s.storage = own;
    const fsdp_gather_of of = {
        .layout = plan.layout, .params = s.storage, .bf16 = plan.strategy.bf16, .k = k};
    CHECK((plan.is_shared
               ? fsdp_gather_in_shared_memory(&plan, mesh->shards, memory, &of, &s.gather, NULL)
               : fsdp_gather_by_messages(&plan, &transport, &of, &s.gather, NULL)) == DCP_OK);
    uint64_t sent = 0;
    for (; s.step < STEPS; s.step++) {
        MPI_Barrier(mesh->shards); /* as an update waits for the norm over all ranks */
        fill_shard(&s);
        sent += gather_step(&s);
    }
    CHECK(s.gather->sent == sent * (plan.strategy.bf16 ? sizeof(uint16_t) : sizeof(float)));
    s.gather->destroy(s.gather);
    dcp_host_memory_free(memory, bytes);
    free(own);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, world;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    kernels *k;
    fsdp_mesh mesh;
    fsdp_layout *layouts[2]; /* the second one stores in place */
    CHECK(kernels_open("cpu", &k) == KERNELS_OK);
    fsdp_mesh_create(MPI_COMM_WORLD, 1, &mesh);
    for (int in_place = 0; in_place < 2; in_place++)
        CHECK(fsdp_layout_create(params, n_params, UNITS, rank, world, 1, in_place,
                                 &layouts[in_place], NULL) == DCP_OK);
    CHECK(layouts[0]->total_params == 10 * 3 + 3 + 5 * 20 + 1 + 40 + 2 * 700 + 7 * 3 * 5 + 1);
    for (int way = 0; way < 48 && world > 1; way++) { /* one rank's storage is the whole model */
        const fsdp_strategy strategy = {
            .bf16 = way & 1, .keep_params = way >> 1 & 1, .prefetch = (uint64_t)way / 16};
        if (way & 8 && !strategy.keep_params) continue;
        gather_steps((fsdp_plan){.layout = layouts[way >> 3 & 1],
                                 .strategy = strategy,
                                 .micro_batches = (uint64_t)world,
                                 .is_shared = way >> 2 & 1},
                     &mesh, k);
    }
    rounds = k;
    for (int way = 0; way < 4; way++)
        gather_steps((fsdp_plan){.layout = layouts[0],
                                 .strategy = {.bf16 = way & 1, .prefetch = (uint64_t)(way & 2)},
                                 .micro_batches = (uint64_t)world,
                                 .offloads = 1,
                                 .is_on_host = 1},
                     &mesh, k);
    CHECK(dcp_host_memory_create(MPI_COMM_WORLD, SIZE_MAX / 2 + 1) == NULL); /* on every rank */
    for (int in_place = 0; in_place < 2; in_place++) fsdp_layout_destroy(layouts[in_place]);
    fsdp_mesh_free(&mesh);
    kernels_close(k);
    MPI_Finalize();
    return 0;
}
