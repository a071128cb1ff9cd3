/* What turns inputs into rows: embeddings, whose gradients are added in the order of the tokens,
 * and images cut into patches. */
#include <string.h>

#include "cpu/cpu.h"
#include "cpu/lanes.h"

static void put_row(float *out, const float *from, size_t dim, unsigned flags) {
    const int adds = (flags & KERNELS_ADD) != 0, rounds = (flags & KERNELS_ROUND) != 0;
    for (size_t i = 0; i < dim; i++) {
        const float value = rounds ? bf16_wide(bf16_of(from[i])) : from[i];
        out[i] = adds ? out[i] + value : value;
    }
}

static void cpu_embedding_forward(kernels *k, float *out, const float *table, const int32_t *ids,
                                  size_t rows, size_t dim, unsigned flags) {
    for (size_t row = 0; row < rows; row++) {
        if (ids[row] >= 0)
            put_row(out + row * dim, table + (size_t)ids[row] * dim, dim, flags);
        else if (!(flags & KERNELS_ADD))
            k->zero(k, out + row * dim, dim);
    }
}

static void cpu_embedding_backward(kernels *k, float *dtable, const float *dout, const int32_t *ids,
                                   size_t rows, size_t vocab, size_t dim) {
    (void)vocab;
    for (size_t row = 0; row < rows; row++)
        if (ids[row] >= 0) k->add(k, dtable + (size_t)ids[row] * dim, dout + row * dim, dim);
}

/* One patch of one image: [channels,patch_height,patch_width]. */
static void copy_patch(float *out, const float *corner, const kernels_patches *s) {
    for (size_t channel = 0; channel < s->channels; channel++)
        for (size_t y = 0; y < s->patch_height; y++, out += s->patch_width)
            memcpy(out, corner + (channel * s->height + y) * s->width,
                   s->patch_width * sizeof *out);
}

static void cpu_patches(kernels *k, float *out, const float *images, const kernels_patches *shape) {
    (void)k;
    const kernels_patches s = *shape;
    size_t image = s.channels * s.height * s.width,
           patch = s.channels * s.patch_height * s.patch_width;
    for (size_t n = 0; n < s.batch; n++)
        for (size_t y = 0; y + s.patch_height <= s.height; y += s.patch_height)
            for (size_t x = 0; x + s.patch_width <= s.width; x += s.patch_width, out += patch)
                copy_patch(out, images + n * image + y * s.width + x, &s);
}

void cpu_embedding_fill(kernels *k) {
    k->embedding_forward = cpu_embedding_forward;
    k->embedding_backward = cpu_embedding_backward;
    k->patches = cpu_patches;
}
