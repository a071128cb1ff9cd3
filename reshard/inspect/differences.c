/* Tensors are paired by merging two sorted lists. A pair is judged by the tensors' checksums if
 * both tables contain them. Otherwise the tensors are the same if the checkpoints' state ids are
 * equal. If the state ids differ, and both tensors are cut into the same boxes, the boxes'
 * checksums decide. Pairs that are still undecided are read. */
#include "inspect/differences.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/element.h"
#include "inspect/stats.h"
#include "inspect/text.h"
#include "programs/json_read.h"
#include "programs/program.h"

static bool same_shape(const dcp_tensor *a, const dcp_tensor *b) {
    for (uint32_t d = 0; a->ndim == b->ndim && d < a->ndim; d++)
        if (a->shape[d] != b->shape[d]) return false;
    return a->ndim == b->ndim;
}

static bool same_box(const dcp_box *a, const dcp_box *b, uint32_t ndim) {
    for (uint32_t d = 0; d < ndim; d++)
        if (a->start[d] != b->start[d] || a->count[d] != b->count[d]) return false;
    return true;
}

/* Compares the checksums of pieces, if both sides are cut into the same boxes. */
static inspect_diff_kind judge_pieces(const inspect_differences *d, const inspect_diff_row *r) {
    size_t n = dcp_checkpoint_pieces(d->a, r->ia);
    inspect_diff_kind kind = DIFF_SAME;
    if (n != dcp_checkpoint_pieces(d->b, r->ib)) return DIFF_UNKNOWN;
    for (size_t k = 0; k < n; k++) {
        dcp_piece a = DCP_PIECE_INIT, b = DCP_PIECE_INIT;
        dcp_checkpoint_piece(d->a, r->ia, k, &a);
        dcp_checkpoint_piece(d->b, r->ib, k, &b);
        if (!same_box(&a.box, &b.box, r->a->ndim)) return DIFF_UNKNOWN;
        if (a.crc != b.crc) kind = DIFF_CHANGED;
    }
    return kind;
}

static inspect_diff_kind judge_row(const inspect_differences *d, const inspect_diff_row *r,
                                   bool same_state) {
    uint64_t a, b;
    if (!r->b) return DIFF_ONLY_A;
    if (!r->a) return DIFF_ONLY_B;
    if (!same_shape(r->a, r->b)) return DIFF_SHAPE;
    if (r->a->dtype != r->b->dtype) return DIFF_DTYPE;
    if (!dcp_checkpoint_crc(d->a, r->ia, &a, NULL) && !dcp_checkpoint_crc(d->b, r->ib, &b, NULL))
        return a == b ? DIFF_SAME : DIFF_CHANGED;
    return same_state ? DIFF_SAME : judge_pieces(d, r);
}

static bool have_same_state(const inspect_differences *d) {
    uint64_t a, b;
    if (dcp_checkpoint_layout(d->a) != DCP_LAYOUT_SHARDED &&
        dcp_checkpoint_layout(d->b) != DCP_LAYOUT_SHARDED)
        return false; /* the tables contain the tensors' checksums */
    return dcp_checkpoint_state_id(d->a, &a) && dcp_checkpoint_state_id(d->b, &b) && a == b;
}

static inspect_diff_row next_pair(const inspect_differences *d, size_t *i, size_t *k) {
    inspect_diff_row r = {.a = dcp_checkpoint_tensor(d->a, *i),
                          .b = dcp_checkpoint_tensor(d->b, *k)};
    int order = !r.a ? 1 : !r.b ? -1 : strcmp(r.a->path, r.b->path);
    if (order > 0) r.a = NULL;
    if (order < 0) r.b = NULL;
    if (r.a) r.ia = (*i)++;
    if (r.b) r.ib = (*k)++;
    return r;
}

static int check_globs(const inspect_diff_options *options, const unsigned char *matched) {
    for (size_t i = 0; i < options->n_globs; i++)
        if (!matched[i])
            return program_refuse("no tensor of either checkpoint matches '%s'", options->globs[i]);
    return 0;
}

int inspect_differences_pair(dcp_checkpoint *a, dcp_checkpoint *b,
                             const inspect_diff_options *options, inspect_differences *out) {
    size_t na = dcp_checkpoint_tensors(a), nb = dcp_checkpoint_tensors(b), i = 0, k = 0;
    *out = (inspect_differences){.a = a, .b = b, .rows = malloc((na + nb + 1) * sizeof *out->rows)};
    unsigned char *matched = calloc(options->n_globs + 1, 1);
    int status = out->rows && matched ? 0 : program_no_memory();
    bool same_state = !status && have_same_state(out);
    while (!status && (i < na || k < nb)) {
        inspect_diff_row r = next_pair(out, &i, &k);
        const char *path = r.a ? r.a->path : r.b->path;
        if (!inspect_filter_matches(options->globs, options->n_globs, path, matched)) continue;
        r.kind = judge_row(out, &r, same_state);
        out->rows[out->n++] = r;
    }
    if (!status) status = check_globs(options, matched);
    free(matched);
    return status;
}

void inspect_differences_free(inspect_differences *d) {
    free(d->rows);
    *d = (inspect_differences){0};
}

double inspect_differences_mean(const inspect_diff_sums *s) {
    return s->finite ? s->abs / (double)s->finite : 0;
}

double inspect_differences_relative(const inspect_diff_sums *s) {
    return s->squares > 0 ? sqrt(s->squares / s->squares_a) : 0;
}

/* Both sides are read chunk by chunk. If the checksums of a block agree, only one side is read, for
 * the norm. Each chunk has its own sums, which are added in order, so the results do not depend on
 * the number of threads and ranks. */

enum { BATCH = 2048 };

typedef struct diff_measuring {
    const inspect_differences *d;
    const inspect_diff_options *options;
    inspect_chunks chunks;
    size_t *row_of;                                   /* [tensors of a] the tensor's row */
    inspect_diff_sums *sums;                          /* [chunks.n] */
    inspect_chunks_reader readers[CHUNKS_THREADS][2]; /* [thread][side] */
} diff_measuring;

/* Adds one element of each side, and their distance `d` if both are finite. */
static void add_pair(inspect_diff_sums *s, const inspect_diff_options *o, double a, double b,
                     double d) {
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

static void add_norm(inspect_diff_sums *s, const double *a, uint64_t n) {
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

/* Returns the distance between two integers, even if fp64 cannot represent them exactly. */
static double distance(dcp_dtype a_type, const char *a, dcp_dtype b_type, const char *b) {
    __int128 x = element_integer(a_type, a), y = element_integer(b_type, b);
    return (double)(y > x ? y - x : x - y);
}

/* Returns true if two complex numbers are equal, as in numpy with equal_nan: a number with a NaN
 * part is NaN. */
static bool same_complex(const double *x, const double *y) {
    const bool x_nan = isnan(x[0]) || isnan(x[1]), y_nan = isnan(y[0]) || isnan(y[1]);
    return x_nan || y_nan ? x_nan && y_nan : x[0] == y[0] && x[1] == y[1];
}

/* Counts elements of equal value whose bits differ: zeros of opposite sign, NaNs with different
 * payloads. */
static uint64_t count_bits_only(const char *a, const char *b, uint64_t n, uint64_t size,
                                const double *x, const double *y) {
    uint64_t bits = 0;
    for (uint64_t i = 0; i < n; i++)
        if (x[i] == y[i] || (isnan(x[i]) && isnan(y[i])))
            bits += memcmp(a + i * size, b + i * size, size) != 0;
    return bits;
}

/* Adds a pair of complex numbers, one of which may have been converted from a real number. Their
 * distance counts only if both are finite. */
static void add_complex_pair(inspect_diff_sums *s, const inspect_diff_options *o, const double *x,
                             const double *y) {
    const bool finite = isfinite(x[0]) && isfinite(x[1]) && isfinite(y[0]) && isfinite(y[1]);
    const double apart = finite ? 0 : (double)INFINITY; /* they do not differ by a finite number */
    if (finite)
        add_pair(s, o, hypot(x[0], x[1]), hypot(y[0], y[1]), hypot(y[0] - x[0], y[1] - x[1]));
    else if (!same_complex(x, y))
        add_pair(s, o, apart, 0, apart);
}

static void add_complex(inspect_diff_sums *s, const inspect_diff_options *o, dcp_dtype a_type,
                        const char *a, dcp_dtype b_type, const char *b, uint64_t n) {
    double x[2 * BATCH], y[2 * BATCH];
    const uint64_t size = dcp_dtype_bytes(a_type);
    element_to_complex(a_type, a, n, x);
    element_to_complex(b_type, b, n, y);
    for (uint64_t i = 0; i < n; i++) {
        const bool same = same_complex(x + 2 * i, y + 2 * i);
        const bool bits = a_type == b_type && memcmp(a + i * size, b + i * size, size) != 0;
        s->differing += (uint64_t)(a_type == b_type ? bits : !same);
        s->bits_only += (uint64_t)(bits && same);
        add_complex_pair(s, o, x + 2 * i, y + 2 * i);
    }
}

/* Adds n elements of each side; b is NULL if it is known to equal a. */
static void add_elements(inspect_diff_sums *s, const inspect_diff_options *o, dcp_dtype a_type,
                         const char *a, dcp_dtype b_type, const char *b, uint64_t n) {
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
        if (element_is_complex(a_type) || element_is_complex(b_type)) {
            add_complex(s, o, a_type, from, b_type, to, m);
            continue;
        }
        element_to_f64(b_type, to, m, y);
        const bool whole = element_is_integer(a_type) && element_is_integer(b_type);
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

/* Returns the checksums of a tensor's blocks if the tensor is contiguous; otherwise NULL. */
static const uint64_t *blocks_of(const dcp_checkpoint *ckpt, size_t i) {
    dcp_piece p = DCP_PIECE_INIT;
    if (dcp_checkpoint_pieces(ckpt, i) != 1 || dcp_checkpoint_piece(ckpt, i, 0, &p)) return NULL;
    return p.block_crcs;
}

static int measure_chunk(void *ctx, unsigned thread, size_t i, dcp_error *err) {
    diff_measuring *m = ctx;
    const inspect_chunk *c = &m->chunks.list[i];
    const inspect_diff_row *r = &m->d->rows[m->row_of[c->tensor]];
    inspect_chunks_reader *a = &m->readers[thread][0], *b = &m->readers[thread][1];
    uint64_t a_size = dcp_dtype_bytes(r->a->dtype), b_size = dcp_dtype_bytes(r->b->dtype);
    const uint64_t *a_crcs = blocks_of(m->d->a, r->ia), *b_crcs = blocks_of(m->d->b, r->ib);
    if (r->a->dtype != r->b->dtype) b_crcs = NULL;
    uint64_t most =
        (a_crcs && b_crcs ? CHUNKS_BLOCK : CHUNKS_SLICE) / (a_size > b_size ? a_size : b_size);
    int status = inspect_chunks_prepare(a, m->d->a, err);
    if (!status) status = inspect_chunks_prepare(b, m->d->b, err);
    for (uint64_t at = c->first, n; !status && at < c->first + c->elems; at += n) {
        uint64_t block = at * a_size / CHUNKS_BLOCK, left = c->first + c->elems - at;
        bool same = a_crcs && b_crcs && a_crcs[block] == b_crcs[block];
        n = left < most ? left : most;
        status = inspect_chunks_read(a, r->a, at, n, err);
        if (!status && !same) status = inspect_chunks_read(b, r->b, at, n, err);
        if (!status)
            add_elements(&m->sums[i], m->options, r->a->dtype, a->data, r->b->dtype,
                         same ? NULL : b->data, n);
    }
    return status;
}

void inspect_differences_add(inspect_diff_sums *to, const inspect_diff_sums *s) {
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

static bool wants_reading(const inspect_diff_row *r, const inspect_diff_options *o) {
    if (r->kind == DIFF_UNKNOWN) return true;
    return (r->kind == DIFF_CHANGED || r->kind == DIFF_DTYPE) && !o->quick;
}

/* Sets the final kind of every row, including rows without elements to read. */
static void settle_rows(inspect_differences *d, const inspect_diff_options *o) {
    for (size_t i = 0; i < d->n; i++) {
        inspect_diff_row *r = &d->rows[i];
        r->measured = wants_reading(r, o);
        if (r->kind == DIFF_UNKNOWN) r->kind = r->sums.differing ? DIFF_CHANGED : DIFF_SAME;
        if (r->kind == DIFF_SAME) r->measured = false;
        if (r->kind == DIFF_CHANGED && r->measured && o->tolerant && !r->sums.beyond)
            r->kind = DIFF_CLOSE;
        d->counts[r->kind]++;
    }
}

static int allocate_measuring(diff_measuring *m) {
    size_t n = dcp_checkpoint_tensors(m->d->a);
    unsigned char *take = calloc(n + 1, 1);
    m->row_of = calloc(n + 1, sizeof *m->row_of);
    int status = take && m->row_of ? 0 : program_no_memory();
    for (size_t i = 0; i < m->d->n && !status; i++)
        if (wants_reading(&m->d->rows[i], m->options)) {
            take[m->d->rows[i].ia] = 1;
            m->row_of[m->d->rows[i].ia] = i;
        }
    if (!status) status = inspect_chunks_cut(m->d->a, take, &m->chunks);
    if (!status) m->sums = calloc(m->chunks.n + 1, sizeof *m->sums);
    if (!status && !m->sums) status = program_no_memory();
    free(take);
    return status;
}

int inspect_differences_measure(const launch *job, inspect_differences *d,
                                const inspect_diff_options *options) {
    diff_measuring m = {.d = d, .options = options};
    int status = launch_worst(job, allocate_measuring(&m));
    if (!status && m.chunks.n)
        status = inspect_chunks_run(job, &m.chunks, "comparing", measure_chunk, &m);
    if (!status) launch_collect(job, m.sums, m.chunks.n * sizeof *m.sums);
    for (size_t i = 0; i < m.chunks.n && !status; i++)
        inspect_differences_add(&d->rows[m.row_of[m.chunks.list[i].tensor]].sums, &m.sums[i]);
    if (!status) settle_rows(d, options);
    for (size_t i = 0; i < CHUNKS_THREADS; i++) {
        inspect_chunks_release(&m.readers[i][0]);
        inspect_chunks_release(&m.readers[i][1]);
    }
    free(m.sums);
    free(m.row_of);
    inspect_chunks_free(&m.chunks);
    return status;
}

/* Compares meta member by member; a value that is an object on both sides is compared member by
 * member, too. The length of keys is limited, because meta may be 16 MiB long. */

enum { KEY = 400, DEPTH = 32 };

typedef struct found {
    json_t *list;
    size_t most, n;
    int depth;
} found;

static void add_difference(found *f, const char *key, json_t *a, json_t *b) {
    if (f->n++ >= f->most) return;
    json_t *entry = json_object();
    json_object_set_new(entry, "key", json_string(key));
    if (a) json_object_set(entry, "a", a);
    if (b) json_object_set(entry, "b", b);
    json_array_append_new(f->list, entry);
}

static void compare_values(found *f, const char *key, json_t *a, json_t *b);

/* Compares one member. If its key would be too long or too deep, the differences below it are
 * reported as one difference of `key`. */
static void compare_member(found *f, const char *key, const char *name, json_t *a, json_t *b) {
    char path[KEY];
    int length = snprintf(path, sizeof path, "%s%s%s", key, key[0] ? "." : "", name);
    if (length >= KEY || f->depth >= DEPTH) {
        if (!json_equal(a, b)) add_difference(f, key, a, b);
        return;
    }
    f->depth++;
    compare_values(f, path, a, b);
    f->depth--;
}

static void compare_values(found *f, const char *key, json_t *a, json_t *b) {
    const char *name;
    json_t *value;
    if (json_equal(a, b)) return;
    if (!json_is_object(a) || !json_is_object(b)) {
        add_difference(f, key, a, b);
        return;
    }
    json_object_foreach(a, name, value)
        compare_member(f, key, name, value, json_object_get(b, name));
    json_object_foreach(b, name, value) if (!json_object_get(a, name))
        compare_member(f, key, name, NULL, value);
}

json_t *inspect_differences_meta(const dcp_checkpoint *a, const dcp_checkpoint *b, size_t most,
                                 size_t *n) {
    found f = {.list = json_array(), .most = most};
    const char *texts[] = {dcp_checkpoint_json(a), dcp_checkpoint_json(b)};
    if (strcmp(texts[0], texts[1]) != 0) {
        json_t *x = core_json_read(texts[0], strlen(texts[0]), NULL);
        json_t *y = core_json_read(texts[1], strlen(texts[1]), NULL);
        compare_values(&f, "", x, y);
        json_decref(x);
        json_decref(y);
    }
    *n = f.n;
    return f.list;
}
