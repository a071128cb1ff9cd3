/* A gathered unit holds every rank's slices at their places, for any number of ranks, also with
 * several units on their way. */
#include <stdlib.h>

#include "../mpi/check.h"
#include "fsdp/gather.h"
#include "fsdp/plan.h"

static const model_param params[] = {
    {.name = "root.embedding", .ndim = 2, .shape = {10, 3}},
    {.name = "root.norm", .ndim = 1, .shape = {3}},
    {.name = "block.matrix", .ndim = 2, .shape = {5, 20}, .frozen = 1},
    {.name = "block.scalar", .ndim = 0},
    {.name = "block.vector", .ndim = 1, .shape = {40}},
};
static const size_t n_params[] = {2, 3};

static float value(size_t unit, size_t param, uint64_t i) {
    return (float)(1000 * (10 * unit + param) + i);
}

static void fill_shard(const fsdp_layout *layout, float *storage) {
    for (size_t u = 0; u < layout->n; u++)
        for (size_t p = 0; p < layout->units[u].n; p++) {
            const fsdp_param *param = &layout->units[u].params[p];
            for (uint64_t i = 0; i < param->elems; i++)
                storage[param->shard_at + i] =
                    value(u, p, param->box.start[0] * param->row_elems + i);
        }
}

static void check_whole(const fsdp_layout *layout, size_t u, const float *whole) {
    for (size_t p = 0; p < layout->units[u].n; p++) {
        const fsdp_param *param = &layout->units[u].params[p];
        const uint64_t rows = param->info.ndim ? param->info.shape[0] : 1;
        for (uint64_t i = 0; i < rows * param->row_elems; i++)
            CHECK(whole[param->whole_at + i] == value(u, p, i));
    }
}

/* What travels in bf16 arrives rounded, and is half as long. */
static void check_bf16(const fsdp_layout *layout, fsdp_gather *g, float *whole) {
    g->bf16 = 1;
    g->sent = 0;
    for (size_t u = 0; u < 2; u++) {
        fsdp_gather_start(g, u);
        fsdp_gather_finish(g, whole);
        for (size_t p = 0; p < layout->units[u].n; p++) {
            const fsdp_param *param = &layout->units[u].params[p];
            const uint64_t rows = param->info.ndim ? param->info.shape[0] : 1;
            for (uint64_t i = 0; i < rows * param->row_elems; i++) {
                const float want = value(u, p, i);
                uint16_t narrow;
                float rounded;
                g->k->narrow(g->k, &narrow, &want, 1);
                g->k->widen(g->k, &rounded, &narrow, 1);
                CHECK(whole[param->whole_at + i] == rounded);
            }
        }
    }
    CHECK(g->sent ==
          sizeof(uint16_t) * (fsdp_gather_sends(layout, 0) + fsdp_gather_sends(layout, 1)));
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, world;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    fsdp_layout *layout;
    CHECK(fsdp_layout_create(params, n_params, 2, rank, world, 1, &layout, NULL) == DCP_OK);
    CHECK(layout->total_params == 10 * 3 + 3 + 5 * 20 + 1 + 40);
    float *storage = calloc(layout->shard_elems + 1, sizeof *storage);
    const uint64_t most = layout->units[1].gathered_elems;
    float *staging = calloc(2 * most, sizeof *staging);
    float *whole = calloc(layout->units[1].whole_elems, sizeof *whole);
    CHECK(storage && staging && whole);
    fill_shard(layout, storage);
    fsdp_flight flights[2] = {{.staging = staging}, {.staging = staging + most}};
    fsdp_mesh mesh;
    fsdp_mesh_create(MPI_COMM_WORLD, 1, &mesh);
    fsdp_transport transport = fsdp_transport_mpi(&mesh);
    fsdp_gather g = {.layout = layout,
                     .transport = &transport,
                     .params = storage,
                     .flights = flights,
                     .n_flights = 2};
    CHECK(kernels_open("cpu", &g.k) == KERNELS_OK);
    fsdp_gather_poll(&g);
    fsdp_gather_start(&g, 1);
    for (size_t next = 0; next < 6; next++) { /* 1, 0, 1 ...: two at once */
        fsdp_gather_start(&g, next % 2);
        fsdp_gather_poll(&g);
        fsdp_gather_finish(&g, whole);
        check_whole(layout, (next + 1) % 2, whole);
    }
    fsdp_gather_finish(&g, whole);
    check_whole(layout, 1, whole);
    CHECK(g.flying == 0);
    const uint64_t sent = 4 * fsdp_gather_sends(layout, 1) + 3 * fsdp_gather_sends(layout, 0);
    CHECK(g.sent == sent * sizeof(float));
    check_bf16(layout, &g, whole);
    kernels_close(g.k);
    free(whole);
    free(staging);
    free(storage);
    fsdp_layout_destroy(layout);
    fsdp_mesh_free(&mesh);
    MPI_Finalize();
    return 0;
}
