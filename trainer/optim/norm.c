/* Rows are cut between ranks but never split, so that a row's sum is one rank's, in one order. */
#include "norm.h"

#include <math.h>

#include "exact.h"

static uint64_t rows_of(const fsdp_param *param) {
    return param->row_elems ? param->elems / param->row_elems : 0;
}

uint64_t norm_rows(const fsdp_layout *layout) {
    uint64_t most = 0;
    for (size_t u = 0; u < layout->n; u++)
        for (size_t i = 0; i < layout->units[u].n; i++) {
            const uint64_t rows = rows_of(&layout->units[u].params[i]);
            if (rows > most) most = rows;
        }
    return most;
}

static void add_param(exact_sum *sum, const fsdp_param *param, kernels *k, const float *grads,
                      double *rows) {
    const uint64_t n = rows_of(param);
    if (n == 0 || param->info.frozen) return;
    k->row_sumsq(k, rows, grads + param->grad_at, n, param->row_elems);
    for (uint64_t i = 0; i < n; i++) exact_add(sum, rows[i]);
}

double norm_of_shards(const fsdp_layout *layout, kernels *k, MPI_Comm comm, const float *grads,
                      double *rows) {
    exact_sum sum = {0};
    for (size_t u = 0; u < layout->n; u++)
        for (size_t i = 0; i < layout->units[u].n; i++)
            add_param(&sum, &layout->units[u].params[i], k, grads, rows);
    return sqrt(exact_sum_of_ranks(&sum, comm));
}
