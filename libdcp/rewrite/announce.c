/* Reading ahead for the fragments of a file: edges and small tensors, which lie here and there in
 * the old files. One by one, each would wait for the disk; told of all at once, the kernel reads
 * them at the same time. Near ones are joined. */
#include <fcntl.h>
#include <stdlib.h>

#include "rewrite/rewrite.h"

enum {
    JOIN_BYTES = 64 << 10,
    RANGE_BYTES = 1 << 20,  /* told of at once */
    MOST_BYTES = 128 << 20, /* of one new file: not more than the page cache keeps */
};

/* What is to be read of a file, and was not told yet. */
typedef struct range {
    uint64_t from, to;
} range;

typedef struct announcer {
    const dcp_checkpoint *from;
    range *ranges; /* a file */
    uint64_t told;
} announcer;

static void tell(announcer *a, step_file *file, range *r) {
    if (r->to > r->from && !step_file_open_plain(file, NULL)) {
        posix_fadvise(file->plain, (off_t)r->from, (off_t)(r->to - r->from), POSIX_FADV_WILLNEED);
        a->told += r->to - r->from;
    }
    *r = (range){0, 0};
}

static int add_run(void *ctx, const rewrite_run *run) {
    announcer *a = ctx;
    step_file *file = run->piece->file;
    range *r = &a->ranges[file - a->from->files];
    uint64_t from = run->piece->row->offset + run->dataset_offset, to = from + run->bytes;
    int joins = from + JOIN_BYTES >= r->from && from <= r->to + JOIN_BYTES &&
                to - (r->from < from ? r->from : from) <= RANGE_BYTES;
    if (!joins) tell(a, file, r);
    if (r->from == r->to) *r = (range){from, to};
    if (from < r->from) r->from = from;
    if (to > r->to) r->to = to;
    return a->told > MOST_BYTES;
}

static int add_fragment(void *ctx, const move_fragment *f) {
    const state_box *box = f->piece->box; /* none: metadata */
    return box ? rewrite_runs(box->ctx, f->box_offset, f->bytes, add_run, ctx) : 0;
}

void rewrite_announce(void *ctx, const image *im) {
    const dcp_checkpoint *from = ((const rewrite *)ctx)->from;
    announcer a = {.from = from, .ranges = calloc(from->n_files, sizeof *a.ranges)};
    size_t first = 0;
    if (!a.ranges) return; /* it is slower then */
    move_fragments(im->pieces, im->n_pieces, &first, 0, UINT64_MAX, add_fragment, &a);
    for (size_t f = 0; f < from->n_files; f++) tell(&a, &from->files[f], &a.ranges[f]);
    free(a.ranges);
}
