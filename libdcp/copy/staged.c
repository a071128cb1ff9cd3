/* Two batches: pieces whose runs alternate in the file are read from one each. */
#include "copy/staged.h"

#include <string.h>

#include "core/fail.h"

void staged_begin(staging *s, const piece *pieces, size_t n) {
    device_staging_cut(s, 2);
    s->ahead = pieces;
    s->n_ahead = n;
}

/* Memory of the box at the offset, good for *bytes; NULL where the batch does not have it. */
static const unsigned char *find(staging_batch *b, const state_box *box, uint64_t offset,
                                 uint64_t *bytes) {
    for (unsigned k = 0; k < b->n; k++) {
        unsigned i = (b->cursor + k) % b->n;
        const staging_range *r = &b->ranges[i];
        if (r->box != box || offset < r->offset || offset >= r->offset + r->bytes) continue;
        b->cursor = i;
        *bytes = r->offset + r->bytes - offset;
        return b->memory + r->at + (offset - r->offset);
    }
    return NULL;
}

/* As much as there is room for; ends the walk where that is not all. */
static int add(void *ctx, const fragment *f) {
    staging_batch *b = ctx;
    uint64_t taken = 0;
    if (!f->piece->staging) return 0;
    if (!device_staging_add(b, f->piece->box, f->piece->row->tensor.path, f->box_offset, f->bytes,
                            &taken))
        return 1;
    return taken < f->bytes;
}

/* Fills the batch from that offset of p's box on. */
static int read_ahead(staging *s, staging_batch *b, const piece *p, uint64_t offset,
                      dcp_error *err) {
    uint64_t run = p->copy->run_bytes, from, in_box;
    size_t first = 0;
    core_box_copy_run(p->copy, offset / run, &from, &in_box);
    from += p->file_offset + offset % run;
    device_staging_clear(b);
    piece_fragments(p, s->n_ahead - (size_t)(p - s->ahead), &first, from, UINT64_MAX, add, b);
    int status = device_staging_send(s, b, STAGING_TO_HOST, err);
    if (!status) status = device_staging_wait(s, b, err);
    if (status) device_staging_cut(s, 2);
    return status;
}

int staged_fetch(const piece *p, uint64_t offset, uint64_t bytes, void *out, dcp_error *err) {
    staging *s = p->staging;
    unsigned char *to = out;
    while (bytes) {
        const unsigned char *from = NULL;
        uint64_t part = 0;
        for (unsigned i = 0; i < 2 && !from; i++) {
            from = find(&s->batches[i], p->box, offset, &part);
            if (from) s->turn = 1 - i;
        }
        if (!from) {
            int status = read_ahead(s, &s->batches[s->turn], p, offset, err);
            if (status) return status;
            continue;
        }
        if (part > bytes) part = bytes;
        memcpy(to, from, part);
        to += part;
        offset += part;
        bytes -= part;
    }
    return DCP_OK;
}
