/* The norm over shards has the bits of the norm over the whole, and takes few calls. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "optim/grad_norm.h"
#include "support/check.h"

static const model_param params[] = {
    {.name = "a", .ndim = 2, .shape = {13, 77}},
    {.name = "b", .ndim = 1, .shape = {1000}},
    {.name = "c", .ndim = 2, .shape = {3, 5}},
    {.name = "d", .ndim = 2, .shape = {6, 128}}, /* no gap behind it: e's rows follow */
    {.name = "frozen", .ndim = 2, .shape = {2, 128}, .frozen = 1},
    {.name = "e", .ndim = 2, .shape = {4, 128}},
};
enum { PARAMS = 6, UNITS = 3 };
static const size_t n_params[UNITS] = {1, 2, 3};

static kernels cpu; /* as it was opened */
static int sums, additions;

static void counted_row_sumsq(kernels *k, double *out, const float *x, size_t rows, size_t dim) {
    sums++;
    cpu.row_sumsq(k, out, x, rows, dim);
}

static void counted_exact_add(kernels *k, uint64_t *sum, const double *x, size_t n) {
    additions++;
    cpu.exact_add(k, sum, x, n);
}

static float value(size_t p, uint64_t i) {
    const uint64_t mixed = (p * 1000003 + i) * 6364136223846793005u;
    return ldexpf((float)(mixed >> 40) / 16777216.0f - 0.5f, (int)(mixed % 40) - 20);
}

static double norm(kernels *k, MPI_Comm comm, float poison) {
    int rank, world;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &world);
    fsdp_layout *layout;
    CHECK(fsdp_layout_create(params, n_params, UNITS, rank, world, 1, 0, &layout, NULL) == DCP_OK);
    float *grads = calloc(layout->grad_elems + 1, sizeof *grads);
    double *rows = malloc(optim_norm_scratch_bytes(layout));
    CHECK(grads && rows);
    for (size_t u = 0, p = 0; u < layout->n; u++)
        for (size_t i = 0; i < layout->units[u].n; i++, p++) {
            const fsdp_param *param = &layout->units[u].params[i];
            for (uint64_t e = 0; e < param->elems && !param->info.frozen; e++)
                grads[param->grad_at + e] = value(p, param->box.start[0] * param->row_elems + e);
        }
    const fsdp_param *first = &layout->units[0].params[0];
    if (first->elems && first->box.start[0] == 0) grads[first->grad_at] += poison;
    const double result = optim_norm_of_shards(layout, k, comm, grads, rows);
    free(rows);
    free(grads);
    fsdp_layout_destroy(layout);
    return result;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    kernels *k;
    CHECK(kernels_open("cpu", &k) == KERNELS_OK);
    cpu = *k;
    k->row_sumsq = counted_row_sumsq;
    k->exact_add = counted_exact_add;
    const double whole = norm(k, MPI_COMM_SELF, 0);
    CHECK(sums == 4 && additions == 1); /* a, b, c, then d and e */
    const double sharded = norm(k, MPI_COMM_WORLD, 0);
    CHECK(memcmp(&whole, &sharded, sizeof whole) == 0);
    double squares = 0;
    static const uint64_t elems[PARAMS] = {13 * 77, 1000, 3 * 5, 6 * 128, 0, 4 * 128};
    for (size_t p = 0; p < PARAMS; p++)
        for (uint64_t i = 0; i < elems[p]; i++) squares += (double)value(p, i) * value(p, i);
    /* 3,296 roundings of fp64 in this sum: 4e-13 at most */
    CHECK(fabs(whole - sqrt(squares)) < 1e-12 * whole);
    CHECK(isnan(norm(k, MPI_COMM_WORLD, INFINITY)));
    kernels_close(k);
    MPI_Finalize();
    return 0;
}
