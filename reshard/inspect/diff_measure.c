/* Reading both sides window by window. Blocks whose checksums agree are read on one side only, for
 * the norm. What a window gives is kept apart and added up in order, so that results are the same
 * whatever the number of threads and ranks. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/element.h"
#include "inspect/diff.h"
#include "inspect/work.h"
#include "programs/program.h"

enum { BATCH = 2048 };

typedef struct side {
    dcp_reader *reader;
    char *data; /* WORK_SLICE */
} side;

typedef struct measuring {
    const diff *d;
    const diff_options *options;
    work work;
    size_t *row_of;     /* [tensors of a] */
    diff_sums *windows; /* [work.n] */
    side sides[WORK_THREADS][2];
} measuring;

/* One element of each, and their distance where both are finite. */
static void add_pair(diff_sums *s, const diff_options *o, double a, double b, double d) {
    if (!isfinite(a) || !isfinite(b)) {
        if (a == b || (isnan(a) && isnan(b))) return;
        s->nonfinite++;
        s->beyond++;
        return;
    }
    s->finite++;
    s->abs += d;
    s->squares += d * d;
    s->squares_a += a * a;
    if (d > s->max) s->max = d;
    if (d > o->atol + o->rtol * fabs(b)) s->beyond++;
}

static void add_norm(diff_sums *s, const double *a, uint64_t n) {
    for (uint64_t i = 0; i < n; i++)
        if (isfinite(a[i])) {
            s->finite++;
            s->squares_a += a[i] * a[i];
        }
}

static uint64_t count_differing(const char *a, const char *b, uint64_t n, uint64_t size) {
    uint64_t differing = 0;
    for (uint64_t i = 0; i < n; i++) differing += memcmp(a + i * size, b + i * size, size) != 0;
    return differing;
}

/* The distance of two integers, which may be more than fp64 holds of either. */
static double distance(dcp_dtype a_type, const char *a, dcp_dtype b_type, const char *b) {
    __int128 x = element_integer(a_type, a), y = element_integer(b_type, b);
    return (double)(y > x ? y - x : x - y);
}

/* Elements of equal value whose bits differ: zeros of either sign, NaNs of other payloads. */
static uint64_t count_bits_only(const char *a, const char *b, uint64_t n, uint64_t size,
                                const double *x, const double *y) {
    uint64_t bits = 0;
    for (uint64_t i = 0; i < n; i++)
        if (x[i] == y[i] || (isnan(x[i]) && isnan(y[i])))
            bits += memcmp(a + i * size, b + i * size, size) != 0;
    return bits;
}

/* n elements of each side; b is NULL where it is known to be as a. */
static void add_elements(diff_sums *s, const diff_options *o, dcp_dtype a_type, const char *a,
                         dcp_dtype b_type, const char *b, uint64_t n) {
    double x[BATCH], y[BATCH];
    uint64_t a_size = dcp_dtype_bytes(a_type), b_size = dcp_dtype_bytes(b_type);
    for (uint64_t i = 0, m; i < n; i += m) {
        m = n - i < BATCH ? n - i : BATCH;
        const char *from = a + i * a_size, *to = b ? b + i * b_size : NULL;
        element_to_f64(a_type, from, m, x);
        if (!to || (a_type == b_type && memcmp(from, to, m * a_size) == 0)) {
            add_norm(s, x, m);
            continue;
        }
        element_to_f64(b_type, to, m, y);
        const int whole = element_is_integer(a_type) && element_is_integer(b_type);
        if (a_type == b_type) s->differing += count_differing(from, to, m, a_size);
        if (a_type == b_type && !whole) s->bits_only += count_bits_only(from, to, m, a_size, x, y);
        for (uint64_t k = 0; k < m; k++) {
            const double d = whole ? distance(a_type, from + k * a_size, b_type, to + k * b_size)
                                   : fabs(y[k] - x[k]);
            if (a_type != b_type && !(d == 0 || x[k] == y[k] || (isnan(x[k]) && isnan(y[k]))))
                s->differing++;
            add_pair(s, o, x[k], y[k], d);
        }
    }
}

/* The checksums of a tensor's blocks, where it lies in one piece; else NULL. */
static const uint64_t *blocks_of(const dcp_checkpoint *ckpt, size_t i) {
    dcp_piece p;
    if (dcp_checkpoint_pieces(ckpt, i) != 1 || dcp_checkpoint_piece(ckpt, i, 0, &p)) return NULL;
    return p.block_crcs;
}

static int prepare(side *s, dcp_checkpoint *ckpt, dcp_error *err) {
    if (!s->data) s->data = malloc(WORK_SLICE);
    if (!s->data) {
        *err = (dcp_error){DCP_ERR_NO_MEMORY, -1, "out of memory"};
        return DCP_ERR_NO_MEMORY;
    }
    return s->reader ? DCP_OK : dcp_reader_create(ckpt, &s->reader, err);
}

static int measure_window(void *ctx, unsigned thread, size_t i, dcp_error *err) {
    measuring *m = ctx;
    const work_window *w = &m->work.windows[i];
    const diff_row *r = &m->d->rows[m->row_of[w->tensor]];
    side *a = &m->sides[thread][0], *b = &m->sides[thread][1];
    uint64_t a_size = dcp_dtype_bytes(r->a->dtype), b_size = dcp_dtype_bytes(r->b->dtype);
    const uint64_t *a_crcs = blocks_of(m->d->a, r->ia), *b_crcs = blocks_of(m->d->b, r->ib);
    if (r->a->dtype != r->b->dtype) b_crcs = NULL;
    uint64_t most =
        (a_crcs && b_crcs ? WORK_BLOCK : WORK_SLICE) / (a_size > b_size ? a_size : b_size);
    int status = prepare(a, m->d->a, err);
    if (!status) status = prepare(b, m->d->b, err);
    for (uint64_t at = w->first, n; !status && at < w->first + w->elems; at += n) {
        uint64_t block = at * a_size / WORK_BLOCK, left = w->first + w->elems - at;
        int same = a_crcs && b_crcs && a_crcs[block] == b_crcs[block];
        n = left < most ? left : most;
        status = work_read(a->reader, r->a, at, n, a->data, err);
        if (!status && !same) status = work_read(b->reader, r->b, at, n, b->data, err);
        if (!status)
            add_elements(&m->windows[i], m->options, r->a->dtype, a->data, r->b->dtype,
                         same ? NULL : b->data, n);
    }
    return status;
}

static void add_sums(diff_sums *to, const diff_sums *s) {
    to->differing += s->differing;
    to->bits_only += s->bits_only;
    to->nonfinite += s->nonfinite;
    to->finite += s->finite;
    to->beyond += s->beyond;
    to->abs += s->abs;
    to->squares += s->squares;
    to->squares_a += s->squares_a;
    if (s->max > to->max) to->max = s->max;
}

static int wants_reading(const diff_row *r, const diff_options *o) {
    if (r->kind == DIFF_UNKNOWN) return 1;
    return (r->kind == DIFF_CHANGED || r->kind == DIFF_DTYPE) && !o->quick;
}

/* Also rows that have no elements to read. */
static void settle(diff *d, const diff_options *o) {
    for (size_t i = 0; i < d->n; i++) {
        diff_row *r = &d->rows[i];
        r->measured = wants_reading(r, o);
        if (r->kind == DIFF_UNKNOWN) r->kind = r->sums.differing ? DIFF_CHANGED : DIFF_SAME;
        if (r->kind == DIFF_SAME) r->measured = 0;
        if (r->kind == DIFF_CHANGED && r->measured && o->tolerant && !r->sums.beyond)
            r->kind = DIFF_CLOSE;
        d->counts[r->kind]++;
    }
}

static int allocate(measuring *m) {
    size_t n = dcp_checkpoint_tensors(m->d->a);
    unsigned char *take = calloc(n + 1, 1);
    m->row_of = calloc(n + 1, sizeof *m->row_of);
    int status = take && m->row_of ? 0 : program_fail(PROGRAM_FAILED, "out of memory");
    for (size_t i = 0; i < m->d->n && !status; i++)
        if (wants_reading(&m->d->rows[i], m->options)) {
            take[m->d->rows[i].ia] = 1;
            m->row_of[m->d->rows[i].ia] = i;
        }
    if (!status) status = work_cut(m->d->a, take, &m->work);
    if (!status) m->windows = calloc(m->work.n + 1, sizeof *m->windows);
    if (!status && !m->windows) status = program_fail(PROGRAM_FAILED, "out of memory");
    free(take);
    return status;
}

int diff_measure(const launch *job, diff *d, const diff_options *options) {
    measuring m = {.d = d, .options = options};
    int status = launch_worst(job, allocate(&m));
    if (!status && m.work.n) status = work_run(job, &m.work, "comparing", measure_window, &m);
    if (!status) launch_collect(job, m.windows, m.work.n * sizeof *m.windows);
    for (size_t i = 0; i < m.work.n && !status; i++)
        add_sums(&d->rows[m.row_of[m.work.windows[i].tensor]].sums, &m.windows[i]);
    if (!status) settle(d, options);
    for (size_t i = 0; i < 2 * WORK_THREADS; i++) {
        side *s = &m.sides[i / 2][i % 2];
        dcp_reader_destroy(s->reader);
        free(s->data);
    }
    free(m.windows);
    free(m.row_of);
    work_free(&m.work);
    return status;
}
