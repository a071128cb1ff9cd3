/* Rows out of the embedding's table, and their gradients back into it in the tokens' order. */
#include <string.h>

#include "cpu/cpu.h"
#include "cpu/lanes.h"

void cpu_embedding_forward(kernels *k, float *out, const float *table, const int32_t *ids,
                           size_t rows, size_t dim) {
    (void)k;
    for (size_t row = 0; row < rows; row++)
        memcpy(out + row * dim, table + (size_t)ids[row] * dim, dim * sizeof *out);
}

void cpu_embedding_backward(kernels *k, float *dtable, const float *dout, const int32_t *ids,
                            size_t rows, size_t vocab, size_t dim) {
    (void)vocab;
    for (size_t row = 0; row < rows; row++)
        cpu_add(k, dtable + (size_t)ids[row] * dim, dout + row * dim, dim);
}
