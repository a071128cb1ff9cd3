/* Conformance: cross-entropy, sums of squares. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "kernel_cases.h"
#include "kernels/limbs.h"

typedef struct loss_case {
    const double *logits;
    const int32_t *targets;
    size_t rows, vocab;
    double scale;
    double *each; /* [rows], written */
} loss_case;

static double cross_entropy(void *ctx) {
    loss_case *l = ctx;
    double total = 0.0;
    for (size_t r = 0; r < l->rows; r++) {
        const double *x = l->logits + r * l->vocab;
        double most = -INFINITY, sum = 0.0;
        for (size_t i = 0; i < l->vocab; i++) most = fmax(most, x[i]);
        for (size_t i = 0; i < l->vocab; i++) sum += exp(x[i] - most);
        int counts = l->targets[r] != KERNELS_IGNORE;
        l->each[r] = counts ? most + log(sum) - x[l->targets[r]] : 0.0;
        total += l->each[r] * l->scale;
    }
    return total;
}

static void loss_of(conform *c, size_t rows, size_t vocab, float spread) {
    kernels *k = c->k;
    size_t n = rows * vocab;
    const float scale = 0.25f;
    float *logits = conform_random(c, n);
    int32_t *targets = conform_host(c, rows, sizeof *targets);
    for (size_t i = 0; i < n; i++) logits[i] *= spread;
    for (size_t r = 0; r < rows; r++)
        targets[r] = r % 3 == 1 ? KERNELS_IGNORE : (int32_t)(r * 17 % vocab);
    double *wide = conform_wide(c, logits, n);
    loss_case l = {wide, targets, rows, vocab, (double)scale, conform_host(c, rows, 8)};
    cross_entropy(&l);
    double *want = l.each;
    l.each = conform_host(c, rows, sizeof *l.each);
    float *x = conform_floats(c, logits, n), *lse = conform_poisoned(c, rows, 4);
    float *dx = conform_poisoned(c, n, 4);
    double *losses = conform_poisoned(c, rows, sizeof *losses);
    int32_t *t = conform_given(c, targets, rows, sizeof *targets);
    k->cross_entropy_forward(k, losses, lse, x, KERNELS_F32, t, rows, vocab);
    double *got = conform_fetch(c, losses, rows, sizeof *got);
    for (size_t r = 0; r < rows; r++)
        if (!(fabs(got[r] - want[r]) <= 1e-6 * (1.0 + fabs(want[r]))))
            fail_msg("loss of row %zu is %.9g instead of %.9g", r, got[r], want[r]);
    k->cross_entropy_backward(k, dx, x, KERNELS_F32, lse, t, rows, vocab, scale);
    float *gradient = conform_fetch_floats(c, dx, n);
    conform_gradient(c, "dlogits", gradient, wide, n, cross_entropy, &l,
                     1e-5 * (1.0 + (double)spread));
    k->cross_entropy_backward(k, x, x, KERNELS_F32, lse, t, rows, vocab, scale);
    conform_close(c, "dlogits over logits", conform_fetch_floats(c, x, n),
                  conform_wide(c, gradient, n), n, 0.0);
}

/* Logits in bf16 give the same as the widened logits, with the gradient rounded. */
static void loss_in_bf16(conform *c, size_t rows, size_t vocab) {
    kernels *k = c->k;
    const size_t n = rows * vocab;
    float *logits = conform_random(c, n);
    int32_t *targets = conform_host(c, rows, sizeof *targets);
    for (size_t i = 0; i < n; i++) logits[i] *= 8.0f;
    for (size_t r = 0; r < rows; r++)
        targets[r] = r % 3 == 1 ? KERNELS_IGNORE : (int32_t)(r * 17 % vocab);
    conform_round(logits, n, KERNELS_BF16);
    float *wide = conform_floats(c, logits, n), *dwide = conform_poisoned(c, n, 4);
    uint16_t *x = conform_typed(c, logits, n, KERNELS_BF16), *dx = conform_poisoned(c, n, 2);
    float *lse = conform_poisoned(c, rows, 4), *same_lse = conform_poisoned(c, rows, 4);
    double *losses = conform_poisoned(c, rows, 8), *same = conform_poisoned(c, rows, 8);
    const int32_t *t = conform_given(c, targets, rows, sizeof *targets);
    k->cross_entropy_forward(k, same, same_lse, wide, KERNELS_F32, t, rows, vocab);
    k->cross_entropy_forward(k, losses, lse, x, KERNELS_BF16, t, rows, vocab);
    const double *got = conform_fetch(c, losses, rows, 8), *want = conform_fetch(c, same, rows, 8);
    for (size_t r = 0; r < rows; r++) assert_true(fabs(got[r] - want[r]) <= 1e-6 * fabs(want[r]));
    k->cross_entropy_backward(k, dwide, wide, KERNELS_F32, lse, t, rows, vocab, 0.25f);
    k->cross_entropy_backward(k, dx, x, KERNELS_BF16, lse, t, rows, vocab, 0.25f);
    conform_rounded(c, dx, dwide, n);
    k->cross_entropy_backward(k, x, x, KERNELS_BF16, lse, t, rows, vocab, 0.25f);
    conform_rounded(c, x, dwide, n);
}

void case_loss(conform *c) {
    c->what = "cross_entropy";
    loss_of(c, 1, 1, 1.0f);
    loss_of(c, 4, 3, 3.0f);
    loss_of(c, 20, 257, 8.0f);
    loss_of(c, 5, 4099, 8.0f);
    loss_of(c, 3, 8200, 8.0f);
    loss_in_bf16(c, 4, 3);
    loss_in_bf16(c, 5, 4099);
}

/* Logits at which exp without the largest taken off would overflow. */
void case_loss_extremes(conform *c) {
    c->what = "cross_entropy, large logits";
    loss_of(c, 7, 33, 5000.0f);
}

static void sumsq_of(conform *c, size_t rows, size_t dim) {
    float *x = conform_random(c, rows * dim);
    double *out = conform_poisoned(c, rows, sizeof *out);
    c->k->row_sumsq(c->k, out, conform_floats(c, x, rows * dim), rows, dim);
    double *got = conform_fetch(c, out, rows, sizeof *got);
    for (size_t r = 0; r < rows; r++) {
        double sum = 0.0;
        for (size_t i = 0; i < dim; i++) sum += (double)x[r * dim + i] * (double)x[r * dim + i];
        if (!(fabs(got[r] - sum) <= 1e-14 * (double)dim * sum))
            fail_msg("row %zu of %zu: %.17g instead of %.17g", r, dim, got[r], sum);
    }
    double *row = conform_poisoned(c, 1, sizeof *row);
    c->k->row_sumsq(c->k, row, conform_floats(c, x + (rows - 1) * dim, dim), 1, dim);
    assert_memory_equal(conform_fetch(c, row, 1, sizeof *row), got + rows - 1, sizeof *got);
}

void case_row_sumsq(conform *c) {
    c->what = "row_sumsq";
    sumsq_of(c, 70, 1);
    sumsq_of(c, 3, 17);
    sumsq_of(c, 9, 320);
    sumsq_of(c, 5, 64);
    sumsq_of(c, 9, 1024);
    sumsq_of(c, 3, 2050);
    sumsq_of(c, 2, 70001);
}

/* In 128-bit integers, whose conversion to double rounds as well. */
static double value_of(const uint64_t *sum, unsigned first) {
    unsigned __int128 value = 0;
    for (unsigned i = 0; i < 3; i++) value += (unsigned __int128)sum[first + i] << 32 * i;
    return ldexp((double)value, (int)(32 * first) - 1074);
}

static void exact_of(conform *c, size_t n, int exponent) {
    float *x = conform_random(c, n);
    double *wide = conform_wide(c, x, n), want = 0;
    uint64_t *zeros = conform_host(c, KERNELS_LIMBS + 1, sizeof *zeros);
    for (size_t i = 0; i < n; i++) wide[i] = ldexp(fabs(wide[i]), exponent);
    for (size_t i = 0; i < n; i++) want += 2 * wide[i]; /* of floats alike in size: exact */
    uint64_t *sum = conform_given(c, zeros, KERNELS_LIMBS + 1, sizeof *sum);
    double *given = conform_given(c, wide, n, sizeof *wide);
    c->k->exact_add(c->k, sum, given, n);
    c->k->exact_add(c->k, sum, given, n);
    uint64_t *got = conform_fetch(c, sum, KERNELS_LIMBS + 1, sizeof *got);
    unsigned first = 0;
    while (first + 3 < KERNELS_LIMBS && !got[first]) first++;
    for (unsigned i = first + 3; i < KERNELS_LIMBS; i++) assert_int_equal(got[i], 0);
    if (value_of(got, first) != want)
        fail_msg("sum of %zu: %.17g instead of %.17g", n, value_of(got, first), want);
    assert_int_equal(got[KERNELS_LIMBS], 0);
}

void case_exact_add(conform *c) {
    c->what = "exact_add";
    exact_of(c, 1, 0);
    exact_of(c, 1000, -20);
    exact_of(c, 70001, 300);
    uint64_t *zeros = conform_host(c, KERNELS_LIMBS + 1, sizeof *zeros);
    uint64_t *sum = conform_given(c, zeros, KERNELS_LIMBS + 1, sizeof *sum);
    const double odd[] = {INFINITY, 0.0, NAN, 0x1p-1074, 1.7976931348623157e308};
    c->k->exact_add(c->k, sum, conform_given(c, odd, 5, sizeof *odd), 5);
    uint64_t *got = conform_fetch(c, sum, KERNELS_LIMBS + 1, sizeof *got);
    assert_int_equal(got[KERNELS_LIMBS], 2);
    assert_int_equal(got[0], 1);
    assert_int_equal(got[63], 0xe0000000); /* 2^1024 - 2^971 is 2^2098 - 2^2045 units */
    assert_int_equal(got[64], 0xffffffff);
    assert_int_equal(got[65], 0x3ffff);
}
