/* Rows are cut between ranks but never split, so that a row's sum is one rank's, in one order. */
#include "norm.h"

#include <math.h>
#include <string.h>

#include "exact.h"

static uint64_t rows_of(const fsdp_param *param) {
    return param->row_elems ? param->elems / param->row_elems : 0;
}

static uint64_t most_rows(const fsdp_layout *layout) {
    uint64_t most = 0;
    for (size_t u = 0; u < layout->n; u++)
        for (size_t i = 0; i < layout->units[u].n; i++) {
            const uint64_t rows = rows_of(&layout->units[u].params[i]);
            if (rows > most) most = rows;
        }
    return most;
}

/* The limbs, then the rows of one parameter. */
enum { SUM_ELEMS = KERNELS_LIMBS + 1 };

size_t norm_scratch_bytes(const fsdp_layout *layout) {
    return SUM_ELEMS * sizeof(uint64_t) + most_rows(layout) * sizeof(double);
}

static void add_param(uint64_t *sum, const fsdp_param *param, kernels *k, const float *grads) {
    const uint64_t n = rows_of(param);
    double *rows = (double *)(sum + SUM_ELEMS);
    if (n == 0 || param->info.frozen) return;
    k->row_sumsq(k, rows, grads + param->grad_at, n, param->row_elems);
    k->exact_add(k, sum, rows, n);
}

double norm_of_shards(const fsdp_layout *layout, kernels *k, MPI_Comm comm, const float *grads,
                      void *scratch) {
    uint64_t *on_device = scratch, sum[SUM_ELEMS];
    k->zero(k, scratch, 2 * SUM_ELEMS);
    for (size_t u = 0; u < layout->n; u++)
        for (size_t i = 0; i < layout->units[u].n; i++)
            add_param(on_device, &layout->units[u].params[i], k, grads);
    k->download(k, sum, scratch, sizeof sum);
    exact_sum all = {.not_finite = sum[KERNELS_LIMBS]};
    memcpy(all.limbs, sum, sizeof all.limbs);
    return sqrt(exact_sum_of_ranks(&all, comm));
}
