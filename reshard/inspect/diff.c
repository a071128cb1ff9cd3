/* Tensors are paired as two sorted lists are merged. Checksums of whole tensors decide wherever the
 * tables give them. Where shards are cut so that they don't, one of these may: equal state ids,
 * or equal boxes with equal checksums. */
#include "inspect/diff.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/choose.h"
#include "programs/program.h"

static int same_shape(const dcp_tensor *a, const dcp_tensor *b) {
    for (uint32_t d = 0; a->ndim == b->ndim && d < a->ndim; d++)
        if (a->shape[d] != b->shape[d]) return 0;
    return a->ndim == b->ndim;
}

static int same_box(const dcp_box *a, const dcp_box *b, uint32_t ndim) {
    for (uint32_t d = 0; d < ndim; d++)
        if (a->start[d] != b->start[d] || a->count[d] != b->count[d]) return 0;
    return 1;
}

/* By the pieces, where both are cut alike. */
static diff_kind judge_pieces(const diff *d, const diff_row *r) {
    size_t n = dcp_checkpoint_pieces(d->a, r->ia);
    diff_kind kind = DIFF_SAME;
    if (n != dcp_checkpoint_pieces(d->b, r->ib)) return DIFF_UNKNOWN;
    for (size_t k = 0; k < n; k++) {
        dcp_piece a, b;
        dcp_checkpoint_piece(d->a, r->ia, k, &a);
        dcp_checkpoint_piece(d->b, r->ib, k, &b);
        if (!same_box(&a.box, &b.box, r->a->ndim)) return DIFF_UNKNOWN;
        if (a.crc != b.crc) kind = DIFF_CHANGED;
    }
    return kind;
}

static diff_kind judge(const diff *d, const diff_row *r, int same_state) {
    uint64_t a, b;
    if (!r->b) return DIFF_ONLY_A;
    if (!r->a) return DIFF_ONLY_B;
    if (!same_shape(r->a, r->b)) return DIFF_SHAPE;
    if (r->a->dtype != r->b->dtype) return DIFF_DTYPE;
    if (!dcp_checkpoint_crc(d->a, r->ia, &a, NULL) && !dcp_checkpoint_crc(d->b, r->ib, &b, NULL))
        return a == b ? DIFF_SAME : DIFF_CHANGED;
    return same_state ? DIFF_SAME : judge_pieces(d, r);
}

static int have_same_state(const diff *d) {
    uint64_t a, b;
    if (dcp_checkpoint_layout(d->a) != DCP_LAYOUT_SHARDED &&
        dcp_checkpoint_layout(d->b) != DCP_LAYOUT_SHARDED)
        return 0; /* the tables tell more */
    return dcp_checkpoint_state_id(d->a, &a) && dcp_checkpoint_state_id(d->b, &b) && a == b;
}

static diff_row next_pair(const diff *d, size_t *i, size_t *k) {
    diff_row r = {.a = dcp_checkpoint_tensor(d->a, *i), .b = dcp_checkpoint_tensor(d->b, *k)};
    int order = !r.a ? 1 : !r.b ? -1 : strcmp(r.a->path, r.b->path);
    if (order > 0) r.a = NULL;
    if (order < 0) r.b = NULL;
    if (r.a) r.ia = (*i)++;
    if (r.b) r.ib = (*k)++;
    return r;
}

static int check_globs(const diff_options *options, const unsigned char *matched) {
    for (size_t i = 0; i < options->n_globs; i++)
        if (!matched[i])
            return program_fail(PROGRAM_USAGE, "no tensor of either matches '%s'",
                                options->globs[i]);
    return 0;
}

int diff_pair(dcp_checkpoint *a, dcp_checkpoint *b, const diff_options *options, diff *out) {
    size_t na = dcp_checkpoint_tensors(a), nb = dcp_checkpoint_tensors(b), i = 0, k = 0;
    *out = (diff){.a = a, .b = b, .rows = malloc((na + nb + 1) * sizeof *out->rows)};
    unsigned char *matched = calloc(options->n_globs + 1, 1);
    int status = out->rows && matched ? 0 : program_fail(PROGRAM_FAILED, "out of memory");
    int same_state = !status && have_same_state(out);
    while (!status && (i < na || k < nb)) {
        diff_row r = next_pair(out, &i, &k);
        const char *path = r.a ? r.a->path : r.b->path;
        if (!choose_matches(options->globs, options->n_globs, path, matched)) continue;
        r.kind = judge(out, &r, same_state);
        out->rows[out->n++] = r;
    }
    if (!status) status = check_globs(options, matched);
    free(matched);
    return status;
}

void diff_free(diff *d) {
    free(d->rows);
    *d = (diff){0};
}

double diff_mean(const diff_sums *s) { return s->finite ? s->abs / (double)s->finite : 0; }

double diff_relative(const diff_sums *s) {
    return s->squares > 0 ? sqrt(s->squares / s->squares_a) : 0;
}
