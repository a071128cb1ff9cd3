/* Makes rows from inputs: embeddings, and patches of images. The gradients of an embedding are
 * added in the order of the tokens. */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "cpu/cpu.h"
#include "cpu/lanes.h"

static void put_row(float *out, const float *from, size_t dim, unsigned flags) {
    const bool adds = (flags & KERNELS_ADD) != 0, rounds = (flags & KERNELS_ROUND) != 0;
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

/* Copies one patch of one image, [channels,patch_height,patch_width]. */
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

/* Heads between their projection and attention: RMSNorm of each head, and rotary positions. A
 * rotation turns a pair: element i of the first half and element i of the second half. The loops
 * below process the pairs first; without a rotation there are no pairs, only single elements. Each
 * loop is compiled for each type, with and without the norm. */

/* The position of a head's first element, and the cosines and sines of the head's token. */
typedef struct head {
    size_t at;
    const float *cosine, *sine;
} head;

/* Returns (mean(x^2) + eps)^-1/2 over the head that begins at `at`. */
CPU_INLINE float rstd_of(const kernels_heads *h, kernels_type type, const void *x, size_t at) {
    float lane[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= h->dim; i += LANES)
        for (size_t l = 0; l < LANES; l++) {
            const float v = lanes_load(x, at + i + l, type);
            lane[l] += v * v;
        }
    for (size_t l = 0; i + l < h->dim; l++) {
        const float v = lanes_load(x, at + i + l, type);
        lane[l] += v * v;
    }
    return 1.0f / sqrtf(lanes_fold(lane) / (float)h->dim + h->eps);
}

/* Returns the head's element i, after the norm if there is a norm. */
CPU_INLINE float normed(const kernels_heads *h, kernels_type type, int norm, float scale,
                        const void *x, size_t at, size_t i) {
    const float v = lanes_load(x, at + i, type);
    return norm ? h->weight[i] * (v * scale) : v;
}

CPU_INLINE void forward(const kernels_heads *h, kernels_type type, int norm, const head *where,
                        void *out, const void *x) {
    const size_t half = h->cosines ? h->dim / 2 : 0, at = where->at;
    const float scale = norm ? rstd_of(h, type, x, at) : 1.0f;
#pragma GCC ivdep
    for (size_t i = 0; i < half; i++) {
        const float a = normed(h, type, norm, scale, x, at, i);
        const float b = normed(h, type, norm, scale, x, at, i + half);
        const float c = where->cosine[i], s = where->sine[i];
        lanes_store(out, at + i, type, a * c - b * s);
        lanes_store(out, at + i + half, type, b * c + a * s);
    }
#pragma GCC ivdep
    for (size_t i = 2 * half; i < h->dim; i++)
        lanes_store(out, at + i, type, normed(h, type, norm, scale, x, at, i));
}

/* The gradients with respect to a pair's two elements before the rotation. */
typedef struct pair {
    float low, high;
} pair;

CPU_INLINE pair turned_back(const head *where, const float *dout, size_t half, size_t i) {
    const float a = dout[where->at + i], b = dout[where->at + i + half];
    const float c = where->cosine[i], s = where->sine[i];
    return (pair){a * c + b * s, b * c - a * s};
}

/* Returns the sum over the head of d * weight * x, where d is the gradient of the norm's output. */
CPU_INLINE float along(const kernels_heads *h, kernels_type type, const head *where,
                       const float *dout, const void *x) {
    const size_t half = h->cosines ? h->dim / 2 : 0, at = where->at;
    float lane[LANES] = {0};
    for (size_t i = 0; i < half; i += LANES) {
        const size_t here = half - i < LANES ? half - i : LANES;
        for (size_t l = 0; l < here; l++) {
            const pair d = turned_back(where, dout, half, i + l);
            lane[l] += d.low * h->weight[i + l] * lanes_load(x, at + i + l, type);
            lane[l] += d.high * h->weight[i + half + l] * lanes_load(x, at + i + half + l, type);
        }
    }
    for (size_t i = 2 * half; i < h->dim; i++)
        lane[i % LANES] += dout[at + i] * h->weight[i] * lanes_load(x, at + i, type);
    return lanes_fold(lane);
}

typedef struct norm_backward {
    int there;
    float scale;    /* rstd */
    float share;    /* mean(g * xhat) * rstd; dx = rstd * (g - x * share) */
    float *dweight; /* [dim] */
} norm_backward;

/* Returns the gradient of the head's element i, from d, the gradient of the norm's output. */
CPU_INLINE float gradient(const kernels_heads *h, kernels_type type, const norm_backward *n,
                          const void *x, size_t at, size_t i, float d) {
    if (!n->there) return d;
    const float v = lanes_load(x, at + i, type);
    n->dweight[i] += d * (v * n->scale);
    return n->scale * (d * h->weight[i] - v * n->share);
}

/* dx may be dout or x: a pair is read before it is written. */
CPU_INLINE void backward(const kernels_heads *h, kernels_type type, int norm, const head *where,
                         void *dx, float *dweight, const float *dout, const void *x) {
    const size_t half = h->cosines ? h->dim / 2 : 0, at = where->at;
    norm_backward n = {.there = norm, .dweight = dweight};
    if (norm) {
        n.scale = rstd_of(h, type, x, at);
        n.share = along(h, type, where, dout, x) / (float)h->dim * n.scale * n.scale;
    }
#pragma GCC ivdep
    for (size_t i = 0; i < half; i++) {
        const pair d = turned_back(where, dout, half, i);
        const float low = gradient(h, type, &n, x, at, i, d.low);
        const float high = gradient(h, type, &n, x, at, i + half, d.high);
        lanes_store(dx, at + i, type, low);
        lanes_store(dx, at + i + half, type, high);
    }
#pragma GCC ivdep
    for (size_t i = 2 * half; i < h->dim; i++)
        lanes_store(dx, at + i, type, gradient(h, type, &n, x, at, i, dout[at + i]));
}

/* Returns head number i, counted over all tokens. */
CPU_INLINE head head_at(const kernels_heads *h, size_t i) {
    if (!h->cosines) return (head){.at = i * h->dim};
    const size_t token = i / h->heads;
    const size_t row = h->places ? (size_t)h->places[token] : token % h->sequence;
    const size_t angle = row * (h->dim / 2);
    return (head){i * h->dim, h->cosines + angle, h->sines + angle};
}

/* EACH(h, loop, arguments...): calls `loop` for every head. The arguments are passed after the
 * loop's first four parameters. */
#define EACH(h, loop, ...)                                                                         \
    for (size_t i = 0; i < (h)->batch * (h)->sequence * (h)->heads; i++) {                         \
        const head where = head_at((h), i);                                                        \
        if ((h)->type == KERNELS_BF16 && (h)->weight)                                              \
            loop((h), KERNELS_BF16, 1, &where, __VA_ARGS__);                                       \
        else if ((h)->type == KERNELS_BF16)                                                        \
            loop((h), KERNELS_BF16, 0, &where, __VA_ARGS__);                                       \
        else if ((h)->weight)                                                                      \
            loop((h), KERNELS_F32, 1, &where, __VA_ARGS__);                                        \
        else                                                                                       \
            loop((h), KERNELS_F32, 0, &where, __VA_ARGS__);                                        \
    }

CPU_CLONES static void cpu_heads_forward(kernels *k, const kernels_heads *h, void *out,
                                         const void *x) {
    (void)k;
    EACH(h, forward, out, x)
}

CPU_CLONES static void cpu_heads_backward(kernels *k, const kernels_heads *h, void *dx,
                                          float *dweight, const float *dout, const void *x) {
    (void)k;
    EACH(h, backward, dx, dweight, dout, x)
}

void cpu_heads_fill(kernels *k) {
    k->heads_forward = cpu_heads_forward;
    k->heads_backward = cpu_heads_backward;
}
