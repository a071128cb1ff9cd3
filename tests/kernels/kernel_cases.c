/* Tools of kernel_conformance; see kernel_cases.h. */
#include "kernel_cases.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { GUARD = 256 }; /* bytes on either side */
#define POISON 0xff   /* four or eight of them are a NaN */

void *conform_host(conform *c, size_t n, size_t elem_bytes) {
    assert_true(c->n_host < CONFORM_BUFFERS);
    return c->host[c->n_host++] = calloc(n ? n : 1, elem_bytes);
}

float *conform_random(conform *c, size_t n) {
    float *x = conform_host(c, n, sizeof *x);
    for (size_t i = 0; i < n; i++) {
        c->random = c->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        x[i] = (float)(int32_t)(c->random >> 32) * 0x1p-31f;
    }
    return x;
}

double *conform_wide(conform *c, const float *x, size_t n) {
    double *wide = conform_host(c, n, sizeof *wide);
    for (size_t i = 0; i < n; i++) wide[i] = (double)x[i];
    return wide;
}

void *conform_poisoned(conform *c, size_t n, size_t elem_bytes) {
    assert_true(c->n_buffers < CONFORM_BUFFERS);
    conform_buffer b = {.before = GUARD + c->shift * elem_bytes, .bytes = n * elem_bytes};
    size_t all = b.before + b.bytes + GUARD;
    unsigned char *fill = malloc(all);
    memset(fill, POISON, all);
    b.base = c->k->alloc(c->k, all);
    assert_non_null(b.base);
    c->k->upload(c->k, b.base, fill, all);
    free(fill);
    c->buffers[c->n_buffers++] = b;
    return b.base + b.before;
}

void *conform_given(conform *c, const void *host, size_t n, size_t elem_bytes) {
    void *memory = conform_poisoned(c, n, elem_bytes);
    c->k->upload(c->k, memory, host, n * elem_bytes);
    return memory;
}

float *conform_floats(conform *c, const float *host, size_t n) {
    return conform_given(c, host, n, sizeof *host);
}

static size_t bytes_of(kernels_type type) {
    return type == KERNELS_BF16 ? sizeof(uint16_t) : sizeof(float);
}

/* To nearest even; of finite numbers. */
static uint16_t narrowed(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float widened(uint16_t x) {
    const uint32_t bits = (uint32_t)x << 16;
    float wide;
    memcpy(&wide, &bits, sizeof wide);
    return wide;
}

void *conform_poisoned_typed(conform *c, size_t n, kernels_type type) {
    return conform_poisoned(c, n, bytes_of(type));
}

void *conform_typed(conform *c, const float *host, size_t n, kernels_type type) {
    if (type != KERNELS_BF16) return conform_floats(c, host, n);
    uint16_t *narrow = conform_host(c, n, sizeof *narrow);
    for (size_t i = 0; i < n; i++) narrow[i] = narrowed(host[i]);
    return conform_given(c, narrow, n, sizeof *narrow);
}

void conform_round(float *host, size_t n, kernels_type type) {
    for (size_t i = 0; i < n && type == KERNELS_BF16; i++) host[i] = widened(narrowed(host[i]));
}

void *conform_fetch(conform *c, const void *memory, size_t n, size_t elem_bytes) {
    unsigned char *host = conform_host(c, n, elem_bytes);
    c->k->download(c->k, host, memory, n * elem_bytes);
    for (size_t i = 0; i < n * elem_bytes; i++)
        c->digest = (c->digest ^ host[i]) * UINT64_C(1099511628211);
    return host;
}

float *conform_fetch_floats(conform *c, const float *memory, size_t n) {
    return conform_fetch(c, memory, n, sizeof *memory);
}

float *conform_fetch_typed(conform *c, const void *memory, size_t n, kernels_type type) {
    if (type != KERNELS_BF16) return conform_fetch_floats(c, memory, n);
    const uint16_t *narrow = conform_fetch(c, memory, n, sizeof *narrow);
    float *wide = conform_host(c, n, sizeof *wide);
    for (size_t i = 0; i < n; i++) wide[i] = widened(narrow[i]);
    return wide;
}

void conform_rounded(conform *c, const uint16_t *narrow, const float *wide, size_t n) {
    uint16_t *want = conform_poisoned(c, n, sizeof *want);
    c->k->narrow(c->k, want, wide, n);
    assert_memory_equal(conform_fetch(c, narrow, n, 2), conform_fetch(c, want, n, 2), n * 2);
}

void conform_close(conform *c, const char *output, const float *got, const double *want, size_t n,
                   double tolerance) {
    double largest = 0.0;
    for (size_t i = 0; i < n; i++) largest = fmax(largest, fabs(want[i]));
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= tolerance * largest))
            fail_msg("%s: %s[%zu] is %.9g instead of %.9g (largest %.3g)", c->what, output, i,
                     (double)got[i], want[i], largest);
}

void conform_gradient(conform *c, const char *output, const float *got, double *x, size_t n,
                      conform_loss *loss, void *ctx, double tolerance) {
    if (c->again) return;
    const double h = 1e-5;
    size_t step = n / 60 + 1;
    double largest = 0.0;
    for (size_t i = 0; i < n; i++) largest = fmax(largest, fabs((double)got[i]));
    for (size_t i = (size_t)(c->random >> 40) % step; i < n; i += step) {
        double at = x[i];
        x[i] = at + h;
        double above = loss(ctx);
        x[i] = at - h;
        double want = (above - loss(ctx)) / (2 * h);
        x[i] = at;
        if (!(fabs((double)got[i] - want) <= tolerance * largest))
            fail_msg("%s: %s[%zu] is %.9g, by differences %.9g (largest %.3g)", c->what, output, i,
                     (double)got[i], want, largest);
    }
}

static void check_guards(conform *c, const conform_buffer *b) {
    size_t all = b->before + b->bytes + GUARD;
    unsigned char *host = malloc(all);
    c->k->download(c->k, host, b->base, all);
    for (size_t i = 0; i < all; i++)
        if ((i < b->before || i >= b->before + b->bytes) && host[i] != POISON)
            fail_msg("%s: wrote outside an array of %zu bytes, at byte %zd", c->what, b->bytes,
                     (ptrdiff_t)(i - b->before));
    free(host);
}

void conform_finish(conform *c) {
    const char *failure = c->k->sync(c->k);
    if (failure) fail_msg("%s: %s", c->what, failure);
    for (size_t i = 0; i < c->n_buffers; i++) {
        check_guards(c, &c->buffers[i]);
        c->k->free(c->k, c->buffers[i].base);
    }
    for (size_t i = 0; i < c->n_host; i++) free(c->host[i]);
    c->n_buffers = c->n_host = 0;
}
