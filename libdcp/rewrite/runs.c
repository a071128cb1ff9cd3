/* From a box that is to be written to the datasets that hold its elements; and reading small parts
 * of it. */
#include "rewrite/runs.h"

#include <string.h>

#include "core/box.h"
#include "move/progress.h"
#include "step/joined.h"
#include "step/view.h"

/* A walk over [low, high), bytes of the dense box. */
typedef struct run_walk {
    uint64_t low, high;
    rewrite_run_fn fn;
    void *ctx;
} run_walk;

/* The runs that `part` of the box, whose first byte is byte `at` of it, has in one dataset.
 * Elements may be cut by the walk's ends. */
static int walk_dataset(const run_walk *w, const step_dataset *p, const box_copy *copy,
                        uint64_t at) {
    int status = DCP_OK;
    for (uint64_t i = 0, a, b; i < copy->runs && !status; i++) {
        core_box_copy_run(copy, i, &a, &b);
        uint64_t start = at + b, end = start + copy->run_bytes;
        uint64_t from = start < w->low ? w->low : start, to = end > w->high ? w->high : end;
        if (from >= to) continue;
        const rewrite_run run = {p, a + (from - start), from - w->low, to - from};
        status = w->fn(w->ctx, &run);
    }
    return status;
}

int rewrite_runs(const rewrite_box *box, uint64_t offset, uint64_t bytes, rewrite_run_fn fn,
                 void *ctx) {
    const step_tensor *t = box->tensor;
    const step_known *known = step_view_of(&box->owner->view, box->owner->from, t);
    const step_dataset *pieces = known->datasets;
    const run_walk w = {offset, offset + bytes, fn, ctx};
    uint64_t size = dcp_dtype_bytes(t->tensor.dtype), n;
    uint64_t end = (offset + bytes + size - 1) / size;
    uint32_t dims = core_box_dims(t->tensor.ndim);
    int status = DCP_OK;
    for (uint64_t at = offset / size; at < end && !status; at += n) {
        dcp_box part;
        size_t k, last;
        n = dcp_box_slice(dims, &box->box, at, end - at, &part);
        step_join_near(t, known, &part, &k, &last);
        for (; k < last && !status; k++) {
            box_copy copy;
            if (step_index_shared(pieces[k].row, &part, &copy))
                status = walk_dataset(&w, &pieces[k], &copy, at * size);
        }
    }
    return status;
}

enum {
    SPAN_RUNS = 256, /* short runs that are read together */
    JOIN_BYTES = 4096,
};

/* Runs of one dataset, near each other. */
typedef struct span_reader {
    rewrite *owner;
    rewrite_run runs[SPAN_RUNS];
    size_t n;
    unsigned char *out;
    dcp_error *err;
} span_reader;

static int read_span(span_reader *s) {
    if (!s->n) return DCP_OK;
    const rewrite_run *first = &s->runs[0], *last = &s->runs[s->n - 1];
    const step_dataset *p = first->piece;
    uint64_t from = p->row->offset + first->dataset_offset;
    uint64_t bytes = last->dataset_offset + last->bytes - first->dataset_offset;
    unsigned char *to = s->n == 1 ? s->out + first->at : s->owner->scratch;
    int status = step_file_read(p->file, to, bytes, from, s->err);
    for (size_t i = 0; i < s->n && s->n > 1 && !status; i++)
        memcpy(s->out + s->runs[i].at, to + (s->runs[i].dataset_offset - first->dataset_offset),
               s->runs[i].bytes);
    s->n = 0;
    return status;
}

/* Whether the run can be read with those that wait. */
static int joins(const span_reader *s, const rewrite_run *run) {
    const rewrite_run *last = &s->runs[s->n - 1];
    return s->n < SPAN_RUNS && last->piece == run->piece && last->bytes <= JOIN_BYTES &&
           run->bytes <= JOIN_BYTES && run->dataset_offset >= last->dataset_offset + last->bytes &&
           run->dataset_offset - last->dataset_offset - last->bytes <= JOIN_BYTES;
}

static int add_to_span(void *ctx, const rewrite_run *run) {
    span_reader *s = ctx;
    int status = s->n && !joins(s, run) ? read_span(s) : DCP_OK;
    s->runs[s->n++] = *run;
    return status;
}

int rewrite_fetch(void *ctx, uint64_t offset, uint64_t bytes, void *out, dcp_error *err) {
    const rewrite_box *box = ctx;
    span_reader s = {.owner = box->owner, .out = out, .err = err};
    int status = move_progress_status(box->owner->progress, err);
    if (!status) status = rewrite_runs(box, offset, bytes, add_to_span, &s);
    return status ? status : read_span(&s);
}
