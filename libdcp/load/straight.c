/* Whole pages of long runs that the device reads from the files itself: in rounds of one file each,
 * since runs of boxes lie in the order of the files. */
#include "copy/straight.h"
#include "load/transfer.h"

typedef struct reader {
    dcp_checkpoint *ckpt;
    straight *t;
    const ckpt_file *file; /* of the round */
    fragment round[STRAIGHT_PARTS];
    size_t n;
    dcp_error *err;
} reader;

static int read_round(reader *r) {
    size_t n = r->n;
    r->n = 0;
    return n ? straight_move(r->t, &r->file->file, r->file->base, r->round, n, 0, r->err) : DCP_OK;
}

static int read_part(void *ctx, const fragment *part) {
    reader *r = ctx;
    if (!part->piece->straight) return DCP_OK;
    const ckpt_file *file = load_file(r->ckpt, part->file_offset);
    int status = DCP_OK;
    if (file != r->file || r->n == STRAIGHT_PARTS) status = read_round(r);
    r->file = file;
    if (!status) r->round[r->n++] = *part;
    return status;
}

int load_straight(dcp_checkpoint *ckpt, io_queue *queue, staging *s, const piece *pieces, size_t n,
                  dcp_error *err) {
    reader r = {.ckpt = ckpt, .err = err};
    size_t first = 0;
    while (first < n && !pieces[first].straight) first++;
    if (first == n) return DCP_OK;
    int status = straight_open(s, queue, &r.t, err);
    if (status) return status;
    status = piece_parts(pieces, n, read_part, &r);
    if (!status) status = read_round(&r);
    straight_close(r.t);
    return status;
}
