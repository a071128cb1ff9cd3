/* Conformance: bf16. What is rounded, products of what is rounded, and activations, which compute
 * in fp32 what their fp32 forms do. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "kernel_cases.h"

static float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static float wide(uint16_t x) { return float_of((uint32_t)x << 16); }

/* The nearest bf16 by trying both neighbours; ties go to the even one. */
static uint16_t nearest(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint16_t below = (uint16_t)(bits >> 16), above = (uint16_t)(below + 1);
    const double low = (double)wide(below), high = (double)wide(above), at = (double)x;
    if (fabs(at - low) == fabs(high - at)) return below & 1 ? above : below;
    return fabs(at - low) < fabs(high - at) ? below : above;
}

static void conversions_of(conform *c, size_t n) {
    kernels *k = c->k;
    float *x = conform_random(c, n);
    for (size_t i = 0; i < n; i += 3) { /* halfway between two */
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        x[i] = float_of((bits & 0xffff0000) | 0x8000);
    }
    uint16_t *narrow = conform_poisoned(c, n, sizeof *narrow);
    float *back = conform_poisoned(c, n, sizeof *back);
    k->narrow(k, narrow, conform_floats(c, x, n), n);
    k->widen(k, back, narrow, n);
    const uint16_t *got = conform_fetch(c, narrow, n, sizeof *got);
    const float *got_back = conform_fetch_floats(c, back, n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(got[i], nearest(x[i]));
        assert_true(got_back[i] == wide(got[i]));
    }
    float *upper = conform_poisoned(c, n, sizeof *upper);
    if (n) k->upload(k, (uint16_t *)upper + n, got, n * sizeof *got);
    k->widen_upper(k, upper, n);
    const float *got_upper = conform_fetch_floats(c, upper, n);
    for (size_t i = 0; i < n; i++) assert_true(got_upper[i] == wide(got[i]));
}

static void extremes(conform *c) {
    const float x[] = {0.0f,     -0.0f,       INFINITY, -INFINITY, float_of(0x7f800001),
                       3.39e38f, float_of(1), NAN};
    const uint16_t want[] = {0, 0x8000, 0x7f80, 0xff80, 0x7fc0, 0x7f7f, 0, 0x7fc0};
    enum { N = sizeof x / sizeof x[0] };
    uint16_t *narrow = conform_poisoned(c, N, sizeof *narrow);
    c->k->narrow(c->k, narrow, conform_floats(c, x, N), N);
    assert_memory_equal(conform_fetch(c, narrow, N, sizeof *narrow), want, sizeof want);
}

void case_bf16(conform *c) {
    const size_t sizes[] = {0, 1, 15, 33, 1000, 70000, 70001};
    c->what = "bf16";
    extremes(c);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) conversions_of(c, sizes[i]);
}

/* n random numbers that bf16 holds. */
static uint16_t *random_bf16(conform *c, size_t n) {
    const float *x = conform_random(c, n);
    uint16_t *out = conform_host(c, n, sizeof *out);
    for (size_t i = 0; i < n; i++) out[i] = nearest(x[i]);
    return out;
}

/* Tensor cores cut off what they add to instead of rounding it, which is felt in long sums: by
 * simulation 6e-6 at a depth of 4100. */
static double tolerance_of(const conform *c, size_t depth) {
    return 2e-6 + (strcmp(c->k->name, "cpu") ? (double)depth * 0x1p-28 : 0.0);
}

static void product_of(conform *c, size_t m, size_t n, size_t depth, unsigned flags) {
    char what[96];
    snprintf(what, sizeof what, "matmul_bf16 %zu x %zu x %zu, flags %u", m, n, depth, flags);
    c->what = what;
    const uint16_t *a = random_bf16(c, m * depth), *b = random_bf16(c, depth * n);
    const float *start = conform_random(c, m * n);
    double *want = conform_host(c, m * n, sizeof *want);
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++) {
            double sum = flags & KERNELS_ADD ? (double)start[i * n + j] : 0.0;
            for (size_t d = 0; d < depth; d++)
                sum += (double)wide(a[flags & KERNELS_TRANSPOSE_A ? d * m + i : i * depth + d]) *
                       (double)wide(b[flags & KERNELS_TRANSPOSE_B ? j * depth + d : d * n + j]);
            want[i * n + j] = sum;
        }
    const int narrow = (flags & KERNELS_NARROW) != 0;
    const size_t bytes = narrow ? sizeof(uint16_t) : sizeof(float);
    void *out = flags & KERNELS_ADD ? conform_given(c, start, m * n, bytes)
                                    : conform_poisoned(c, m * n, bytes);
    c->k->matmul_bf16(c->k, out, conform_given(c, a, m * depth, sizeof *a),
                      conform_given(c, b, depth * n, sizeof *b), m, n, depth, flags);
    const void *got = conform_fetch(c, out, m * n, bytes);
    float *values = conform_host(c, m * n, sizeof *values);
    for (size_t i = 0; i < m * n; i++)
        values[i] = narrow ? wide(((const uint16_t *)got)[i]) : ((const float *)got)[i];
    conform_close(c, "c", values, want, m * n, narrow ? 0x1p-8 : tolerance_of(c, depth));
    conform_finish(c);
    c->what = "matmul_bf16";
}

/* Larger ones than the panels that are widened or packed at once, in all directions. */
void case_matmul_bf16(conform *c) {
    const size_t shapes[][3] = {{1, 1, 1},     {3, 5, 7},     {257, 1, 33},
                                {33, 17, 9},   {35, 50, 11},  {64, 96, 64},
                                {2060, 9, 20}, {20, 9, 4100}, {7, 530, 40}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (unsigned flags = 0; flags < 16; flags++)
            if (!(flags & KERNELS_ADD && flags & KERNELS_NARROW))
                product_of(c, shapes[i][0], shapes[i][1], shapes[i][2], flags);
}

typedef struct inputs {
    uint16_t *d, *x, *y;   /* bf16 */
    float *wd, *wx, *wy;   /* the same, wide */
    uint16_t *out, *other; /* results in bf16 */
    float *wout, *wother;  /* and in fp32 */
} inputs;

static inputs make_inputs(conform *c, size_t n) {
    kernels *k = c->k;
    const uint16_t *x = random_bf16(c, n), *y = random_bf16(c, n), *d = random_bf16(c, n);
    inputs in = {.d = conform_given(c, d, n, 2),
                 .x = conform_given(c, x, n, 2),
                 .y = conform_given(c, y, n, 2),
                 .wd = conform_poisoned(c, n, 4),
                 .wx = conform_poisoned(c, n, 4),
                 .wy = conform_poisoned(c, n, 4),
                 .out = conform_poisoned(c, n, 2),
                 .other = conform_poisoned(c, n, 2),
                 .wout = conform_poisoned(c, n, 4),
                 .wother = conform_poisoned(c, n, 4)};
    k->widen(k, in.wd, in.d, n);
    k->widen(k, in.wx, in.x, n);
    k->widen(k, in.wy, in.y, n);
    return in;
}

static void activations_of(conform *c, size_t n, kernels_activation f) {
    kernels *k = c->k;
    const inputs i = make_inputs(c, n);
    k->activation_forward(k, i.out, i.x, n, f, KERNELS_BF16);
    k->activation_forward(k, i.wout, i.wx, n, f, KERNELS_F32);
    conform_rounded(c, i.out, i.wout, n);
    k->activation_backward(k, i.other, i.out, i.d, i.x, n, f, KERNELS_BF16);
    k->activation_backward(k, i.wother, i.wout, i.wd, i.wx, n, f, KERNELS_F32);
    conform_rounded(c, i.out, i.wout, n);
    conform_rounded(c, i.other, i.wother, n);
    k->gated_forward(k, i.out, i.x, i.y, n, f, KERNELS_BF16);
    k->gated_forward(k, i.wout, i.wx, i.wy, n, f, KERNELS_F32);
    conform_rounded(c, i.out, i.wout, n);
    uint16_t *again = conform_poisoned(c, n, 2);
    float *wide_again = conform_poisoned(c, n, 4);
    k->gated_backward(k, again, i.out, i.other, i.d, i.x, i.y, n, f, KERNELS_BF16);
    k->gated_backward(k, wide_again, i.wout, i.wother, i.wd, i.wx, i.wy, n, f, KERNELS_F32);
    conform_rounded(c, again, wide_again, n);
    conform_rounded(c, i.out, i.wout, n);
    conform_rounded(c, i.other, i.wother, n);
    k->gated_backward(k, i.d, i.x, i.y, i.d, i.x, i.y, n, f, KERNELS_BF16);
    conform_rounded(c, i.d, wide_again, n);
    conform_rounded(c, i.x, i.wout, n);
    conform_rounded(c, i.y, i.wother, n);
}

void case_activations_bf16(conform *c) {
    const size_t sizes[] = {1, 37, 3001};
    c->what = "activations in bf16";
    for (int f = KERNELS_RELU; f <= KERNELS_SILU; f++)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            activations_of(c, sizes[i], (kernels_activation)f);
            conform_finish(c);
        }
}
