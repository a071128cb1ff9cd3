/* Conformance: linear layers with what follows the product. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernel_cases.h"

typedef struct layer {
    size_t rows, in, out;
} layer;

typedef struct followed {
    int transposed, bias, add, in_place;
    int activated; /* -1: not */
} followed;

static double activation(kernels_activation f, double x) {
    if (f == KERNELS_GELU) return 0.5 * x * (1.0 + erf(x / sqrt(2.0)));
    return 0.5 * x * (1.0 + tanh(sqrt(2.0 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

/* Random numbers that bf16 holds, as fp32 and in the backend's memory as either type. */
static float *operand(conform *c, size_t n, kernels_type type, const void **memory) {
    float *x = conform_random(c, n);
    uint16_t *narrow = conform_host(c, n, sizeof *narrow);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bits &= 0xffff0000;
        memcpy(x + i, &bits, sizeof bits);
        narrow[i] = (uint16_t)(bits >> 16);
    }
    *memory = type == KERNELS_BF16 ? conform_given(c, narrow, n, 2) : conform_given(c, x, n, 4);
    return x;
}

static void layer_of(conform *c, layer s, kernels_type type, followed with) {
    const size_t n = s.rows * s.out;
    const float *bias = conform_random(c, s.out), *add = conform_random(c, n);
    double *want = conform_host(c, n, sizeof *want), *active = conform_host(c, n, sizeof *active);
    float *y = conform_poisoned(c, n, sizeof *y), *added = conform_floats(c, add, n);
    kernels_linear l = {.rows = s.rows,
                        .in = s.in,
                        .out = s.out,
                        .operands = type,
                        .flags = with.transposed ? KERNELS_TRANSPOSE_B : 0};
    const float *x = operand(c, s.rows * s.in, type, &l.x);
    const float *weight = operand(c, s.in * s.out, type, &l.weight);
    for (size_t i = 0; i < n; i++) {
        const size_t row = i / s.out, col = i % s.out;
        double sum = (with.bias ? (double)bias[col] : 0.0) + (with.add ? (double)add[i] : 0.0);
        for (size_t d = 0; d < s.in; d++)
            sum += (double)x[row * s.in + d] *
                   (double)weight[with.transposed ? col * s.in + d : d * s.out + col];
        want[i] = sum;
        active[i] = with.activated < 0 ? 0.0 : activation((kernels_activation)with.activated, sum);
    }
    if (with.bias) l.bias = conform_floats(c, bias, s.out);
    if (with.add) l.add = added;
    if (with.activated >= 0) {
        l.activated = conform_poisoned(c, n, sizeof *y);
        l.f = (kernels_activation)with.activated;
    }
    if (with.in_place) y = added;
    c->k->linear(c->k, y, &l);
    conform_close(c, "y", conform_fetch_floats(c, y, n), want, n, 2e-6);
    if (with.add && !with.in_place)
        conform_close(c, "add", conform_fetch_floats(c, added, n), conform_wide(c, add, n), n, 0.0);
    if (l.activated) /* roughly: a tanh for bf16; an exact one is told from it all the same */
        conform_close(c, "activated", conform_fetch_floats(c, l.activated, n), active, n,
                      type == KERNELS_BF16 && l.f == KERNELS_GELU_TANH ? 5e-4 : 4e-6);
}

static void all_of(conform *c, layer s, kernels_type type) {
    const int activated[] = {-1, KERNELS_GELU, KERNELS_GELU_TANH};
    char what[96];
    for (int i = 0; i < 8 + 4; i++) /* in place only what is added */
        for (size_t f = 0; f < sizeof activated / sizeof activated[0]; f++) {
            const followed with = {.transposed = i & 1,
                                   .bias = i & 2,
                                   .add = i & 4 || i >= 8,
                                   .in_place = i >= 8,
                                   .activated = activated[f]};
            snprintf(what, sizeof what, "layer %zu x %zu x %zu, type %d, variant %d, activation %d",
                     s.rows, s.out, s.in, (int)type, i, activated[f]);
            c->what = what;
            layer_of(c, s, type, with);
            conform_finish(c);
        }
    c->what = "layer";
}

void case_layer(conform *c) {
    const layer shapes[] = {{1, 1, 1},   {3, 7, 5},   {5, 7, 16},   {6, 8, 24},   {6, 9, 24},
                            {6, 10, 24}, {33, 9, 17}, {20, 40, 64}, {1, 64, 300}, {260, 20, 16}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int type = KERNELS_F32; type <= KERNELS_BF16; type++)
            all_of(c, shapes[i], (kernels_type)type);
}
