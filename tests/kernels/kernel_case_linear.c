/* Conformance: copies, sums, matrix products and the embedding. */
#include <stdio.h>
#include <string.h>

#include "kernel_cases.h"

static void vectors_of(conform *c, size_t n) {
    kernels *k = c->k;
    float *x = conform_random(c, n), *y = conform_random(c, n);
    double *sum = conform_wide(c, y, n), *scaled = conform_wide(c, x, n), *wide_x = scaled;
    float *dx = conform_floats(c, x, n), *dy = conform_floats(c, y, n);
    float *copy = conform_poisoned(c, n, sizeof *copy), *zero = conform_poisoned(c, n, 4);
    k->copy(k, copy, dx, n);
    conform_close(c, "copy", conform_fetch_floats(c, copy, n), wide_x, n, 0.0);
    k->add(k, dy, dx, n);
    for (size_t i = 0; i < n; i++) sum[i] += wide_x[i];
    conform_close(c, "add", conform_fetch_floats(c, dy, n), sum, n, 1e-7);
    k->zero(k, zero, n);
    conform_close(c, "zero", conform_fetch_floats(c, zero, n), conform_host(c, n, 8), n, 0.0);
    k->scale(k, copy, 0.3f, n);
    for (size_t i = 0; i < n; i++) scaled[i] *= (double)0.3f;
    conform_close(c, "scale", conform_fetch_floats(c, copy, n), scaled, n, 1e-7);
}

void case_vectors(conform *c) {
    const size_t sizes[] = {0, 1, 15, 16, 33, 1000, 70001};
    c->what = "vectors";
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) vectors_of(c, sizes[i]);
}

typedef struct product {
    size_t m, n, depth;
} product;

static void reference_product(double *c, const float *a, const float *b, product s,
                              unsigned flags) {
    for (size_t i = 0; i < s.m; i++)
        for (size_t j = 0; j < s.n; j++) {
            double sum = flags & KERNELS_ADD ? c[i * s.n + j] : 0.0;
            for (size_t d = 0; d < s.depth; d++)
                sum += (double)a[flags & KERNELS_TRANSPOSE_A ? d * s.m + i : i * s.depth + d] *
                       (double)b[flags & KERNELS_TRANSPOSE_B ? j * s.depth + d : d * s.n + j];
            c[i * s.n + j] = sum;
        }
}

static void matmul_of(conform *c, product s, unsigned flags) {
    char what[96];
    snprintf(what, sizeof what, "matmul %zu x %zu x %zu, flags %u", s.m, s.n, s.depth, flags);
    c->what = what;
    size_t out = s.m * s.n;
    float *a = conform_random(c, s.m * s.depth), *b = conform_random(c, s.depth * s.n);
    float *start = conform_random(c, out);
    double *want = conform_wide(c, start, out);
    reference_product(want, a, b, s, flags);
    float *dc =
        flags & KERNELS_ADD ? conform_floats(c, start, out) : conform_poisoned(c, out, sizeof *dc);
    c->k->matmul(c->k, dc, conform_floats(c, a, s.m * s.depth), conform_floats(c, b, s.depth * s.n),
                 s.m, s.n, s.depth, flags);
    conform_close(c, "c", conform_fetch_floats(c, dc, out), want, out, 2e-6);
    conform_finish(c);
    c->what = "matmul";
}

void case_matmul(conform *c) {
    const product shapes[] = {{1, 1, 1},   {3, 5, 7},    {1, 300, 64}, {257, 1, 33},
                              {33, 17, 9}, {35, 50, 11}, {64, 96, 64}, {130, 65, 600}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (unsigned flags = 0; flags < 8; flags++) matmul_of(c, shapes[i], flags);
}

/* Allowed, tf32 costs no more than its rounding; forbidden again, or beside bf16, it is gone. */
void case_tf32(conform *c) {
    enum { M = 33, N = 17, DEPTH = 40 };
    kernels *k = c->k;
    float *a = conform_random(c, M * DEPTH), *b = conform_random(c, DEPTH * N);
    float *da = conform_floats(c, a, M * DEPTH), *db = conform_floats(c, b, DEPTH * N);
    float *dc = conform_poisoned(c, M * N, sizeof *dc);
    uint16_t *narrow = conform_given(c, a, M * DEPTH, sizeof *narrow);
    double *want = conform_host(c, M * N, sizeof *want);
    c->what = "matmul with tf32";
    reference_product(want, a, b, (product){M, N, DEPTH}, 0);
    for (int allow = 1; allow >= 0; allow--) {
        k->allow_tf32(k, allow);
        k->narrow(k, narrow, da, M * DEPTH);
        k->matmul_bf16(k, dc, narrow, narrow, 1, 1, 1, 0);
        k->matmul(k, dc, da, db, M, N, DEPTH, 0);
        conform_close(c, "c", conform_fetch_floats(c, dc, M * N), want, M * N, allow ? 2e-3 : 2e-6);
    }
}

/* ids[rows], every fifth below 0 where some are to be left out. */
static int32_t *random_ids(conform *c, size_t rows, size_t vocab, int leaves_out) {
    float *place = conform_random(c, rows);
    int32_t *ids = conform_host(c, rows, sizeof *ids);
    for (size_t r = 0; r < rows; r++)
        ids[r] =
            leaves_out && r % 5 == 1 ? -1 : (int32_t)((place[r] + 1.0f) * 0.49f * (float)vocab);
    return ids;
}

/* out[rows,dim] in place of, or onto, what it was. */
static void embedding_forward_of(conform *c, const float *table, const int32_t *ids, size_t rows,
                                 size_t vocab, size_t dim, unsigned flags) {
    kernels *k = c->k;
    const int adds = (flags & KERNELS_ADD) != 0;
    float *before = conform_random(c, rows * dim);
    float *used = conform_host(c, vocab * dim, sizeof *used);
    double *want = conform_host(c, rows * dim, sizeof *want);
    memcpy(used, table, vocab * dim * sizeof *used);
    conform_round(used, vocab * dim, flags & KERNELS_ROUND ? KERNELS_BF16 : KERNELS_F32);
    for (size_t i = 0; i < rows * dim; i++) {
        const int32_t id = ids[i / dim];
        const float own = id < 0 ? 0.0f : used[(size_t)id * dim + i % dim];
        want[i] = (double)(adds ? before[i] + own : own);
    }
    float *out =
        adds ? conform_floats(c, before, rows * dim) : conform_poisoned(c, rows * dim, sizeof *out);
    k->embedding_forward(k, out, conform_floats(c, table, vocab * dim),
                         conform_given(c, ids, rows, sizeof *ids), rows, dim, flags);
    conform_close(c, "out", conform_fetch_floats(c, out, rows * dim), want, rows * dim, 0.0);
}

static void embedding_backward_of(conform *c, const int32_t *ids, size_t rows, size_t vocab,
                                  size_t dim) {
    kernels *k = c->k;
    float *dout = conform_random(c, rows * dim), *start = conform_random(c, vocab * dim);
    float *in_order = conform_host(c, vocab * dim, sizeof *in_order);
    memcpy(in_order, start, vocab * dim * sizeof *in_order);
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < dim && ids[r] >= 0; i++)
            in_order[(size_t)ids[r] * dim + i] += dout[r * dim + i];
    float *dtable = conform_floats(c, start, vocab * dim);
    k->embedding_backward(k, dtable, conform_floats(c, dout, rows * dim),
                          conform_given(c, ids, rows, sizeof *ids), rows, vocab, dim);
    conform_close(c, "dtable", conform_fetch_floats(c, dtable, vocab * dim),
                  conform_wide(c, in_order, vocab * dim), vocab * dim, 0.0);
}

static void embedding_of(conform *c, size_t rows, size_t vocab, size_t dim) {
    static const unsigned flags[] = {0, KERNELS_ADD, KERNELS_ROUND, KERNELS_ADD | KERNELS_ROUND};
    for (int leaves_out = 0; leaves_out < 2; leaves_out++) {
        const float *table = conform_random(c, vocab * dim);
        const int32_t *ids = random_ids(c, rows, vocab, leaves_out);
        for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
            embedding_forward_of(c, table, ids, rows, vocab, dim, flags[i]);
        embedding_backward_of(c, ids, rows, vocab, dim);
        conform_finish(c);
        c->what = "embedding";
    }
}

void case_embedding(conform *c) {
    c->what = "embedding";
    embedding_of(c, 1, 1, 1);
    embedding_of(c, 50, 7, 3);
    embedding_of(c, 200, 300, 65);
    embedding_of(c, 600, 40, 5);
    embedding_of(c, 300, 3, 260);
}
