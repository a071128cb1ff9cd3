/* A linear layer. Its matrix products are where transfers get to proceed. */
#include "models/parts.h"

static void product(model_run *run, void *c, operand a, operand b, size_t m, size_t n, size_t depth,
                    unsigned flags) {
    kernels *k = run->k;
    if (a.narrow)
        k->matmul_bf16(k, c, a.narrow, b.narrow, m, n, depth, flags);
    else
        k->matmul(k, c, a.wide, b.wide, m, n, depth, flags);
    if (run->poll) run->poll(run->poll_ctx);
}

void linear_forward(model_run *run, const linear *l, void *y, operand x, size_t rows,
                    const float *const *params, unsigned flags) {
    const unsigned transposed = l->in_first ? 0 : KERNELS_TRANSPOSE_B;
    product(run, y, x, operand_weight(run, l, params), rows, l->out, l->in, transposed | flags);
    if (l->bias != NO_PLACE)
        run->k->copy_rows(run->k, y, l->out, operand_rounded(run, 0, params[l->bias], l->out), 0,
                          rows, l->out, KERNELS_ADD);
}

void linear_backward(model_run *run, const linear *l, void *dx, operand dy, operand x, size_t rows,
                     const float *const *params, float *const *grads, unsigned flags) {
    float *dweight = grads[l->weight];
    if (dweight && l->in_first)
        product(run, dweight, x, dy, l->in, l->out, rows, KERNELS_TRANSPOSE_A | KERNELS_ADD);
    else if (dweight)
        product(run, dweight, dy, x, l->out, l->in, rows, KERNELS_TRANSPOSE_A | KERNELS_ADD);
    if (l->bias != NO_PLACE && grads[l->bias])
        run->k->sum_rows(run->k, grads[l->bias], dy.wide, l->out, rows, l->out);
    if (dx)
        product(run, dx, dy, operand_weight(run, l, params), rows, l->in, l->out,
                (l->in_first ? KERNELS_TRANSPOSE_B : 0) | flags);
}
