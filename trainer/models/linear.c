/* A linear layer. Its matrix products are where transfers get to proceed. */
#include "models/parts.h"

static void product(model_run *run, float *c, const float *a, const float *b, size_t m, size_t n,
                    size_t depth, unsigned flags) {
    run->k->matmul(run->k, c, a, b, m, n, depth, flags);
    if (run->poll) run->poll(run->poll_ctx);
}

void linear_forward(model_run *run, const linear *l, float *y, const float *x, size_t rows,
                    const float *const *params, unsigned add) {
    const unsigned transposed = l->in_first ? 0 : KERNELS_TRANSPOSE_B;
    product(run, y, x, params[l->weight], rows, l->out, l->in, transposed | add);
    if (l->bias != NO_PLACE)
        run->k->copy_rows(run->k, y, l->out, params[l->bias], 0, rows, l->out, KERNELS_ADD);
}

void linear_backward(model_run *run, const linear *l, float *dx, const float *dy, const float *x,
                     size_t rows, const float *const *params, float *const *grads, unsigned add) {
    float *dweight = grads[l->weight];
    if (dweight && l->in_first)
        product(run, dweight, x, dy, l->in, l->out, rows, KERNELS_TRANSPOSE_A | KERNELS_ADD);
    else if (dweight)
        product(run, dweight, dy, x, l->out, l->in, rows, KERNELS_TRANSPOSE_A | KERNELS_ADD);
    if (l->bias != NO_PLACE && grads[l->bias])
        run->k->sum_rows(run->k, grads[l->bias], dy, l->out, rows, l->out);
    if (dx)
        product(run, dx, dy, params[l->weight], rows, l->in, l->out,
                (l->in_first ? KERNELS_TRANSPOSE_B : 0) | add);
}
