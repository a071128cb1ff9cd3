/* Dimensions after the last one with a step are whole ranges, and so is that one if its rows are
 * short: of what is read there, the elements that are meant are picked. Of the dimensions before it
 * one index is read at a time. */
#include <stdlib.h>
#include <string.h>

#include "inspect/slice.h"

enum { PIECE_BYTES = 16 << 20, LONG_ROW = 1 << 20 };

typedef struct reading {
    dcp_checkpoint *ckpt;
    const slice *s;
    uint32_t lead; /* dimensions of which one index is read at a time */
    uint64_t size; /* bytes of an element */
    char *data;
    slice_fn fn;
    void (*on_read)(void *ctx, uint64_t done, uint64_t total);
    void *ctx;
    uint64_t done;
} reading;

static uint64_t stride_of(const slice *s, uint32_t d) {
    return (uint64_t)(s->step[d] < 0 ? -s->step[d] : s->step[d]);
}

/* The lowest index of a dimension. */
static uint64_t lowest(const slice *s, uint32_t d) {
    if (s->step[d] > 0 || !s->count[d]) return s->start[d];
    return s->start[d] - (s->count[d] - 1) * stride_of(s, d);
}

static uint32_t count_lead(const slice *s, uint64_t size) {
    uint32_t d = s->tensor->ndim;
    uint64_t row = size;
    while (d > 0 && stride_of(s, d - 1) == 1) row *= s->count[--d];
    if (!d) return 0;
    return row * stride_of(s, d - 1) > LONG_ROW || row > LONG_ROW ? d : d - 1;
}

/* Of the piece's n elements those that the step of dimension `lead` meets. */
static uint64_t pick(const reading *r, const dcp_box *piece, uint64_t n) {
    uint32_t d = r->lead, ndim = r->s->tensor->ndim;
    uint64_t inner = 1, kept = 0;
    if (d == ndim || stride_of(r->s, d) == 1) return n;
    for (uint32_t e = d + 1; e < ndim; e++) inner *= piece->count[e];
    for (uint64_t k = 0; k < n / inner; k++) {
        uint64_t index = piece->start[d] + k % piece->count[d];
        if ((index - lowest(r->s, d)) % stride_of(r->s, d)) continue;
        memmove(r->data + kept * r->size, r->data + k * inner * r->size, inner * r->size);
        kept += inner;
    }
    return kept;
}

static int read_box(reading *r, const dcp_box *box, dcp_error *err) {
    uint32_t ndim = r->s->tensor->ndim;
    uint64_t elems = dcp_box_elems(box, ndim);
    for (uint64_t first = 0, n; first < elems; first += n) {
        dcp_box piece;
        n = dcp_box_slice(ndim, box, first, PIECE_BYTES / r->size, &piece);
        int status = dcp_checkpoint_read(r->ckpt, r->s->tensor->path, &piece, r->data, err);
        if (status) return status;
        uint64_t kept = pick(r, &piece, n);
        r->fn(r->ctx, r->data, kept);
        r->done += kept;
        if (r->on_read) r->on_read(r->ctx, r->done, slice_elems(r->s));
    }
    return DCP_OK;
}

/* The box of lead indices `index`. */
static dcp_box box_at(const reading *r, const uint64_t *index) {
    const slice *s = r->s;
    dcp_box box = {.count = {1}};
    for (uint32_t d = 0; d < s->tensor->ndim; d++) {
        box.start[d] = lowest(s, d) + (d < r->lead ? index[d] * stride_of(s, d) : 0);
        box.count[d] = d < r->lead ? 1 : (s->count[d] - 1) * stride_of(s, d) + 1;
    }
    return box;
}

int slice_read(dcp_checkpoint *ckpt, const slice *s, slice_fn fn,
               void (*on_read)(void *ctx, uint64_t done, uint64_t total), void *ctx,
               dcp_error *err) {
    uint64_t index[DCP_MAX_DIMS] = {0}, size = dcp_dtype_bytes(s->tensor->dtype);
    if (!slice_elems(s)) return DCP_OK;
    reading r = {ckpt, s, count_lead(s, size), size, malloc(PIECE_BYTES), fn, on_read, ctx, 0};
    int status = DCP_OK;
    if (!r.data) {
        *err = (dcp_error){DCP_ERR_NO_MEMORY, -1, "out of memory"};
        return DCP_ERR_NO_MEMORY;
    }
    for (uint32_t d = 0; !status && d != UINT32_MAX;) {
        const dcp_box box = box_at(&r, index);
        status = read_box(&r, &box, err);
        for (d = r.lead - 1; d != UINT32_MAX && ++index[d] == s->count[d]; d--) index[d] = 0;
    }
    free(r.data);
    return status;
}
