/* A save reads from two batches, as pieces whose runs alternate in the file are read from one each.
 * A load takes all batches in turn: one is filled while those before it are being copied. */
#include "move/box_bytes.h"

#include <string.h>

#include "core/bytes.h"
#include "core/fail.h"
#include "core/strides.h"
#include "device/staging.h"

#define LOAD_BYTES (16u << 20) /* of staging buffers */
#define READ_BATCHES 2
#define CAST_BYTES (16u << 10) /* cast at once where they don't go straight into memory */

void move_device_begin(move_device *d, const move_piece *pieces, size_t n) {
    if (!d->staging) return;
    device_staging_cut(d->staging, READ_BATCHES);
    d->pieces = pieces;
    d->n = n;
}

/* Memory of the box at the offset, good for *bytes; NULL where the batch does not have it. */
static const unsigned char *find_range(staging_batch *b, const state_box *box, uint64_t offset,
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
static int add_to_batch(void *ctx, const move_fragment *f) {
    staging_batch *b = ctx;
    uint64_t taken = 0;
    if (!f->piece->device) return 0;
    if (!device_staging_add(b, f->piece->box, f->piece->row->tensor.path, f->box_offset, f->bytes,
                            &taken))
        return 1;
    return taken < f->bytes;
}

/* Fills the batch from that offset of p's box on. */
static int read_ahead(const move_device *d, staging_batch *b, const move_piece *p, uint64_t offset,
                      dcp_error *err) {
    uint64_t run = p->copy->run_bytes, from, in_box;
    size_t first = 0;
    core_box_copy_run(p->copy, offset / run, &from, &in_box);
    from += p->file_offset + offset % run;
    device_staging_clear(b);
    move_fragments(p, d->n - (size_t)(p - d->pieces), &first, from, UINT64_MAX, add_to_batch, b);
    int status = device_staging_send(d->staging, b, STAGING_TO_HOST, err);
    if (!status) status = device_staging_wait(d->staging, b, err);
    if (status) device_staging_cut(d->staging, READ_BATCHES);
    return status;
}

static int fetch_from_device(const move_piece *p, uint64_t offset, uint64_t bytes, void *out,
                             dcp_error *err) {
    staging *s = p->device->staging;
    unsigned char *to = out;
    while (bytes) {
        const unsigned char *from = NULL;
        uint64_t part = 0;
        for (unsigned i = 0; i < READ_BATCHES && !from; i++) {
            from = find_range(&s->batches[i], p->box, offset, &part);
            if (from) s->turn = 1 - i;
        }
        if (!from) {
            int status = read_ahead(p->device, &s->batches[s->turn], p, offset, err);
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

static int fetch_from_source(const state_box *box, uint64_t offset, uint64_t bytes, void *out,
                             dcp_error *err) {
    int status = box->source(box->ctx, offset, bytes, out, err);
    if (status && err) err->rank = -1; /* the caller's failure: no rank is named yet */
    if (!status || (status < 0 && status >= DCP_ERR_CANCELLED)) return status;
    return core_fail(err, DCP_ERR_IO, "a source returned %d, which is no status", status);
}

int move_box_fetch(const move_piece *p, uint64_t offset, uint64_t bytes, void *out,
                   dcp_error *err) {
    if (p->device) return fetch_from_device(p, offset, bytes, out, err);
    if (p->box && !p->box->data) return fetch_from_source(p->box, offset, bytes, out, err);
    if (p->box)
        core_strides_get(p->box->data, p->box->strides, offset, bytes, out);
    else
        memcpy(out, p->raw + offset, bytes);
    return DCP_OK;
}

int move_box_take(const move_piece *p, uint64_t dataset_offset, uint64_t offset, uint64_t bytes,
                  void *out, dcp_error *err) {
    const unsigned char *memory = move_piece_memory(p, offset, bytes);
    if (memory) {
        move_piece_sum_copy(p, dataset_offset, out, memory, bytes);
        return DCP_OK;
    }
    const int status = move_box_fetch(p, offset, bytes, out, err);
    if (!status) move_piece_sum(p, dataset_offset, out, bytes);
    return status;
}

int move_device_open(move_device *d, const dcp_state *state, dcp_error *err) {
    if (!state->device) return DCP_OK;
    int status = device_staging_open(state->device, LOAD_BYTES, &d->staging, err);
    if (status) return status;
    device_staging_cut(d->staging, d->staging->slots);
    return device_staging_follow(d->staging, err);
}

/* Sends the batch, and makes the next one empty. */
static int send_batch(staging *s, dcp_error *err) {
    staging_batch *b = &s->batches[s->turn];
    int status = b->n ? device_staging_send(s, b, STAGING_TO_DEVICE, err) : DCP_OK;
    s->turn = (s->turn + 1) % s->n;
    if (!status) status = device_staging_wait(s, &s->batches[s->turn], err);
    if (!status) device_staging_clear(&s->batches[s->turn]);
    return status;
}

int move_device_put(move_device *d, const state_box *box, const char *path, uint64_t offset,
                    const void *data, uint64_t bytes, dcp_error *err) {
    staging *s = d->staging;
    const unsigned char *from = data;
    int status = DCP_OK;
    while (bytes && !status) {
        uint64_t part;
        unsigned char *to =
            device_staging_add(&s->batches[s->turn], box, path, offset, bytes, &part);
        if (!to) {
            status = send_batch(s, err);
            continue;
        }
        memcpy(to, from, part);
        from += part;
        offset += part;
        bytes -= part;
    }
    return status;
}

/* Bytes of the box as its memory has them. */
static int put_as_stored(const move_piece *p, uint64_t offset, const unsigned char *data,
                         uint64_t bytes, dcp_error *err) {
    if (!p->box->data)
        return move_device_put(p->device, p->box, p->row->tensor.path, offset, data, bytes, err);
    core_strides_put(p->box->data, p->box->strides, offset, bytes, data);
    return DCP_OK;
}

/* `n` stored elements become the box's from number `first` on. */
static int put_elements(const move_piece *p, uint64_t first, const unsigned char *stored,
                        uint64_t n, dcp_error *err) {
    unsigned char part[CAST_BYTES];
    const dcp_dtype from = p->row->tensor.dtype, to = p->cast->to;
    const uint64_t size = dcp_dtype_bytes(to);
    int status = DCP_OK;
    if (p->box->data && !p->box->strides) {
        dcp_convert(from, stored, to, (unsigned char *)p->box->data + first * size, n);
        return DCP_OK;
    }
    for (uint64_t at = 0, some; at < n && !status; at += some) {
        some = core_min_u64(n - at, CAST_BYTES / size);
        dcp_convert(from, stored + at * dcp_dtype_bytes(from), to, part, some);
        status = put_as_stored(p, (first + at) * size, part, some * size, err);
    }
    return status;
}

/* A part of one element, from byte `at` of it on. */
static int put_part(const move_piece *p, uint64_t element, uint64_t at, const unsigned char *data,
                    uint64_t bytes, dcp_error *err) {
    move_cast *c = p->cast;
    memcpy(c->partial + at, data, bytes);
    c->n_partial += (uint32_t)bytes;
    if (c->n_partial < dcp_dtype_bytes(p->row->tensor.dtype)) return DCP_OK;
    c->n_partial = 0;
    return put_elements(p, element, c->partial, 1, err);
}

static int put_cast(const move_piece *p, uint64_t offset, const unsigned char *data, uint64_t bytes,
                    dcp_error *err) {
    const uint64_t size = dcp_dtype_bytes(p->row->tensor.dtype), at = offset % size;
    const uint64_t head = at ? core_min_u64(size - at, bytes) : 0, rest = (bytes - head) % size;
    const uint64_t first = (offset + head) / size, n = (bytes - head) / size;
    int status = DCP_OK;
    if (head) status = put_part(p, offset / size, at, data, head, err);
    if (!status && n) status = put_elements(p, first, data + head, n, err);
    if (!status && rest) status = put_part(p, first + n, 0, data + head + n * size, rest, err);
    return status;
}

int move_box_put(const move_piece *p, uint64_t offset, const void *data, uint64_t bytes,
                 dcp_error *err) {
    return (p->cast ? put_cast : put_as_stored)(p, offset, data, bytes, err);
}

int move_box_place(const move_piece *p, uint64_t dataset_offset, uint64_t offset, const void *data,
                   uint64_t bytes, dcp_error *err) {
    int status = p->box ? move_box_put(p, offset, data, bytes, err) : DCP_OK;
    if (p->box && p->box->data && !p->cast)
        move_piece_sum_memory(p, dataset_offset, offset, bytes);
    else
        move_piece_sum(p, dataset_offset, data, bytes);
    return status;
}

int move_device_flush(move_device *d, dcp_error *err) {
    staging *s = d->staging;
    int status = DCP_OK;
    for (unsigned i = 0; s && i < s->n && !status; i++) status = send_batch(s, err);
    return status;
}
