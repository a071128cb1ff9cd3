/* A linear layer in steps, for backends and shapes that have nothing better. */
#include "kernels/kernels.h"

void kernels_linear_apart(kernels *k, float *y, const kernels_linear *l) {
    const unsigned flags = l->flags | (l->add ? KERNELS_ADD : 0);
    const size_t n = l->rows * l->out;
    if (l->add && l->add != y) k->copy(k, y, l->add, n);
    if (l->operands == KERNELS_BF16)
        k->matmul_bf16(k, y, l->x, l->weight, l->rows, l->out, l->in, flags);
    else
        k->matmul(k, y, l->x, l->weight, l->rows, l->out, l->in, flags);
    if (l->bias) k->copy_rows(k, y, l->out, l->bias, 0, l->rows, l->out, KERNELS_ADD);
    if (l->activated) k->activation_forward(k, l->activated, y, n, l->f, KERNELS_F32);
}
