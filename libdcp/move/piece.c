/* Pieces and their fragments. */
#include "move/piece.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "core/strides.h"
#include "device/staging.h"
#include "io/file.h"

void move_piece_set_copy(move_piece *p, const box_copy *copy) {
    p->copy = core_box_copy_keep(copy);
    p->page_bytes = io_page_bytes() & 0x7fffffffu;
    p->bulk = copy->run_bytes >= MOVE_BULK_BYTES && p->file_offset % PAGE_BYTES == 0;
}

bool move_pieces_have_copies(const move_piece *pieces, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!pieces[i].copy) return false;
    return true;
}

void move_pieces_free(move_piece *pieces, size_t n) {
    for (size_t i = 0; i < n && pieces; i++) free((void *)pieces[i].copy);
    free(pieces);
}

static int order_by_offset(const void *a, const void *b) {
    const move_piece *x = a, *y = b;
    if (x->file_offset != y->file_offset) return x->file_offset < y->file_offset ? -1 : 1;
    return (x->copy->base_a > y->copy->base_a) - (x->copy->base_a < y->copy->base_a);
}

/* Returns true if the pieces are sorted already. They usually are, because both tensors in the file
 * and pieces are in the order of the tensors' paths. */
static bool are_sorted(const move_piece *pieces, size_t n) {
    for (size_t i = 1; i < n; i++)
        if (order_by_offset(&pieces[i - 1], &pieces[i]) > 0) return false;
    return true;
}

void move_pieces_sort(move_piece *pieces, size_t n) {
    if (!are_sorted(pieces, n)) qsort(pieces, n, sizeof *pieces, order_by_offset);
}

size_t move_pieces_find(const move_piece *pieces, size_t n, uint64_t file_offset) {
    return core_lower_bound(&pieces->file_offset, n, sizeof *pieces, file_offset);
}

const unsigned char *move_piece_memory(const move_piece *p, uint64_t offset, uint64_t bytes) {
    if (!p->box) return p->raw + offset;
    if (!p->box->data || p->cast) return NULL;
    uint64_t contiguous;
    const unsigned char *memory =
        core_strides_find(p->box->data, p->box->strides, offset, &contiguous);
    return contiguous < bytes ? NULL : memory;
}

/* Returns the number of bytes from `offset` to the end of its block, in a dataset of `total`
 * bytes. */
static uint64_t block_left(uint64_t total, uint64_t offset) {
    uint64_t b = offset / BLOCK_BYTES;
    return b * BLOCK_BYTES + format_index_block_bytes(total, b) - offset;
}

/* Adds the raw checksum of bytes that lie in one block. */
static void add_sum(uint64_t *sums, uint64_t total, uint64_t offset, uint64_t bytes, uint64_t raw) {
    sums[offset / BLOCK_BYTES] ^= core_crc64_shift(raw, block_left(total, offset) - bytes);
}

/* Returns the offset, in the whole tensor, of byte `offset` of the dataset. *left becomes the
 * number of bytes from there to the end of the run. */
static uint64_t in_tensor(const move_global *g, uint64_t offset, uint64_t *left) {
    uint64_t run = g->copy.run_bytes, at = offset % run, start, b;
    core_box_copy_run(&g->copy, offset / run, &start, &b);
    *left = run - at;
    return start + at;
}

/* Returns the offset, in the box, of byte `offset` of the dataset. */
static uint64_t in_box(const move_piece *p, uint64_t offset) {
    uint64_t a, b;
    core_box_copy_run(p->copy, core_box_copy_find(p->copy, offset), &a, &b);
    return b + (offset - a);
}

static uint64_t box_bytes(const move_piece *p) { return p->copy->runs * p->copy->run_bytes; }

bool move_piece_turn(const move_piece *p, uint64_t from, uint64_t *to) {
    if (!p->holders) return true;
    uint64_t number = (p->file_offset + from) / MOVE_TURN_BYTES;
    *to = core_min_u64(*to, (number + 1) * MOVE_TURN_BYTES - p->file_offset);
    return number % p->holders == p->turn;
}

/* Returns how many bytes of the box lie before `offset` in the dataset. All of the box must be in
 * the piece. */
static uint64_t box_bytes_before(const move_piece *p, uint64_t offset) {
    uint64_t a, b, run = core_box_copy_find(p->copy, offset);
    if (run == p->copy->runs) return box_bytes(p);
    core_box_copy_run(p->copy, run, &a, &b);
    return run * p->copy->run_bytes + (offset > a ? offset - a : 0);
}

static int walk_turns(const move_piece *p, bool wants_own, move_box_fn fn, void *ctx) {
    uint64_t at = 0;
    int status = DCP_OK;
    for (uint64_t from = p->copy->base_a, to; at < box_bytes(p) && !status; from = to) {
        to = p->bytes;
        bool own = move_piece_turn(p, from, &to);
        uint64_t before = box_bytes_before(p, to);
        if (own == wants_own && before > at) status = fn(ctx, p, at, before - at);
        at = before;
    }
    return status;
}

int move_piece_walk_others(const move_piece *p, move_box_fn fn, void *ctx) {
    return walk_turns(p, false, fn, ctx);
}

int move_piece_walk_supplied(const move_piece *p, move_box_fn fn, void *ctx) {
    return walk_turns(p, true, fn, ctx);
}

static int count_others(void *ctx, const move_piece *p, uint64_t offset, uint64_t bytes) {
    (void)p, (void)offset;
    *(uint64_t *)ctx += bytes;
    return DCP_OK;
}

uint64_t move_piece_supplied(const move_piece *p) {
    uint64_t others = 0;
    if (p->holders) move_piece_walk_others(p, count_others, &others);
    return box_bytes(p) - others;
}

move_piece move_piece_own_sums(const move_piece *p) {
    move_piece own = *p;
    own.sums = NULL;
    own.global = NULL;
    return own;
}

uint64_t move_piece_in_block(const move_piece *p, uint64_t offset, uint64_t bytes) {
    if (p->own) bytes = core_min_u64(bytes, block_left(box_bytes(p), in_box(p, offset)));
    if (p->sums) bytes = core_min_u64(bytes, block_left(p->bytes, offset));
    if (p->global) {
        uint64_t left, at = in_tensor(p->global, offset, &left);
        bytes = core_min_u64(bytes, left);
        bytes = core_min_u64(bytes, block_left(p->global->bytes, at));
    }
    return bytes;
}

void move_piece_add(const move_piece *p, uint64_t offset, uint64_t bytes, uint64_t raw) {
    uint64_t left;
    if (p->own) add_sum(p->own, box_bytes(p), in_box(p, offset), bytes, raw);
    if (p->sums) add_sum(p->sums, p->bytes, offset, bytes, raw);
    if (p->global)
        add_sum(p->global->sums, p->global->bytes, in_tensor(p->global, offset, &left), bytes, raw);
}

/* Cuts at the blocks of all checksums, so each byte is read only once. */
static void sum_from(const move_piece *p, uint64_t offset, const void *data,
                     const box_strides *strides, uint64_t box_offset, uint64_t bytes) {
    if (!p->sums && !p->global && !p->own) return;
    while (bytes) {
        uint64_t part = move_piece_in_block(p, offset, bytes);
        move_piece_add(p, offset, part, core_strides_sum(0, data, strides, box_offset, part));
        offset += part;
        box_offset += part;
        bytes -= part;
    }
}

void move_piece_sum(const move_piece *p, uint64_t offset, const unsigned char *data,
                    uint64_t bytes) {
    sum_from(p, offset, data, NULL, 0, bytes);
}

/* Like move_piece_sum, but also copies the bytes to `to` (core/crc64.h). */
static void move_piece_sum_copy(const move_piece *p, uint64_t offset, void *to,
                                const unsigned char *data, uint64_t bytes) {
    unsigned char *out = to;
    if (!p->sums && !p->global && !p->own) {
        memcpy(to, data, bytes);
        return;
    }
    for (uint64_t part; bytes; offset += part, data += part, out += part, bytes -= part) {
        part = move_piece_in_block(p, offset, bytes);
        move_piece_add(p, offset, part, core_crc64_copy(0, out, data, part));
    }
}

void move_piece_sum_memory(const move_piece *p, uint64_t offset, uint64_t box_offset,
                           uint64_t bytes) {
    sum_from(p, offset, p->box->data, p->box->strides, box_offset, bytes);
}

void move_piece_sum_box(const move_piece *p, uint64_t offset, const unsigned char *data,
                        uint64_t bytes) {
    uint64_t run = p->copy->run_bytes;
    while (bytes) {
        uint64_t at = offset % run, part = run - at < bytes ? run - at : bytes, a, b;
        core_box_copy_run(p->copy, offset / run, &a, &b);
        move_piece_sum(p, a + at, data, part);
        offset += part;
        data += part;
        bytes -= part;
    }
}

void move_piece_interior(const move_piece *p, uint64_t run, uint64_t *from, uint64_t *to) {
    uint64_t a, b;
    core_box_copy_run(p->copy, run, &a, &b);
    uint64_t start = p->file_offset + a, end = start + p->copy->run_bytes;
    *from = (start + p->page_bytes - 1) / p->page_bytes * p->page_bytes;
    *to = end / p->page_bytes * p->page_bytes;
    if (*to < *from) *to = *from;
}

/* If *at lies in a skipped span, moves *at to the end of that span. Moves *end back to the
 * beginning of the next skipped span. Afterwards *at may lie after *end. */
static void skip_spans(const move_span_list *skip, uint64_t *at, uint64_t *end) {
    if (!skip || !skip->n) return;
    size_t low = core_lower_bound(&skip->list->to, skip->n, sizeof *skip->list, *at + 1);
    if (low == skip->n) return;
    if (skip->list[low].from <= *at) *at = skip->list[low++].to;
    if (low < skip->n && skip->list[low].from < *end) *end = skip->list[low].from;
}

/* Does the same for the parts that other holders supply, and then for skipped spans. */
static void skip_others(const move_piece *p, uint64_t *at, uint64_t *end) {
    if (p->holders && p->turn >= p->holders) {
        *at = *end;
        return;
    }
    if (p->holders) {
        uint64_t number = *at / MOVE_TURN_BYTES;
        uint64_t ahead = (p->turn + p->holders - number % p->holders) % p->holders;
        if (ahead) *at = (number + ahead) * MOVE_TURN_BYTES;
        *end = core_min_u64(*end, (number + ahead + 1) * MOVE_TURN_BYTES);
    }
    skip_spans(p->skip, at, end);
}

typedef struct fragment_walk {
    const move_piece *piece;
    uint64_t low, high; /* range of the file */
    move_fragment_fn fn;
    void *ctx;
} fragment_walk;

/* Calls fn with the parts of [start, end) in the file that lie in the walk's range and that this
 * rank supplies. They belong to a run that begins at run_start in the file and at box_offset in the
 * box. */
static int call_with_parts(const fragment_walk *w, uint64_t run_start, uint64_t box_offset,
                           uint64_t start, uint64_t end) {
    if (start < w->low) start = w->low;
    if (end > w->high) end = w->high;
    while (start < end) {
        uint64_t part_end = end;
        skip_others(w->piece, &start, &part_end);
        if (start >= part_end) continue;
        move_fragment f = {w->piece, start, start - w->piece->file_offset,
                           box_offset + (start - run_start), part_end - start};
        int stop = w->fn(w->ctx, &f);
        if (stop) return stop;
        start = part_end;
    }
    return 0;
}

/* Returns false if [low, high) of the file lies in a single part of MOVE_TURN_BYTES that another
 * holder supplies. Most walks cover a single part. */
static bool may_supply(const move_piece *p, uint64_t low, uint64_t high) {
    uint64_t first = low / MOVE_TURN_BYTES;
    return !p->holders || first != (high - 1) / MOVE_TURN_BYTES || first % p->holders == p->turn;
}

static int walk_piece(const fragment_walk *w) {
    const move_piece *p = w->piece;
    if (!may_supply(p, w->low, w->high)) return 0;
    uint64_t skip = w->low > p->file_offset ? w->low - p->file_offset : 0;
    for (uint64_t i = core_box_copy_find(p->copy, skip); i < p->copy->runs; i++) {
        uint64_t a, b;
        core_box_copy_run(p->copy, i, &a, &b);
        uint64_t start = p->file_offset + a, end = start + p->copy->run_bytes;
        if (start >= w->high) return 0;
        uint64_t from = end, to = end; /* range of the bulk part */
        if (p->bulk) move_piece_interior(p, i, &from, &to);
        int stop = call_with_parts(w, start, b, start, from);
        if (!stop) stop = call_with_parts(w, start, b, to, end);
        if (stop) return stop;
    }
    return 0;
}

int move_fragments(const move_piece *pieces, size_t n, size_t *first, uint64_t low, uint64_t high,
                   move_fragment_fn fn, void *ctx) {
    while (*first < n && pieces[*first].file_offset + pieces[*first].bytes <= low) ++*first;
    for (size_t i = *first; i < n && pieces[i].file_offset < high; i++) {
        fragment_walk w = {&pieces[i], low, high, fn, ctx};
        if (i + PREFETCH_DISTANCE < n)
            core_prefetch(pieces[i + PREFETCH_DISTANCE].box, sizeof(state_box));
        int stop = walk_piece(&w);
        if (stop) return stop;
    }
    return 0;
}

/* Returns the end of the bulk part that begins at `at` in the file: the end of the dataset's block.
 * If pages are at least as large as blocks, it is the end of the page, so requests are aligned in
 * the file. */
static uint64_t part_end(const move_piece *p, uint64_t at) {
    const uint64_t cut = p->page_bytes < BLOCK_BYTES ? BLOCK_BYTES : p->page_bytes,
                   origin = p->page_bytes < BLOCK_BYTES ? p->file_offset : 0;
    return origin + ((at - origin) / cut + 1) * cut;
}

static int walk_bulk_run(const move_piece *p, uint64_t run, move_fragment_fn fn, void *ctx) {
    uint64_t a, b, at, to;
    core_box_copy_run(p->copy, run, &a, &b);
    move_piece_interior(p, run, &at, &to);
    while (at < to) {
        uint64_t end = to;
        skip_others(p, &at, &end);
        if (at >= end) continue;
        uint64_t dataset_offset = at - p->file_offset;
        end = core_min_u64(end, part_end(p, at));
        move_fragment part = {p, at, dataset_offset, b + (dataset_offset - a), end - at};
        int status = fn(ctx, &part);
        if (status) return status;
        at = end;
    }
    return DCP_OK;
}

int move_bulk_parts(const move_piece *pieces, size_t n, move_fragment_fn fn, void *ctx) {
    int status = DCP_OK;
    for (size_t i = 0; i < n && !status; i++)
        if (pieces[i].bulk)
            for (uint64_t run = 0; run < pieces[i].copy->runs && !status; run++)
                status = walk_bulk_run(&pieces[i], run, fn, ctx);
    return status;
}

/* A save reads from two batches, because two pieces whose runs alternate in the file need one batch
 * each. A load uses all batches in turn: one is filled while the previous ones are being copied. */

#define LOAD_BYTES (16u << 20) /* size of a load's staging buffers */
#define READ_BATCHES 2
#define CAST_BYTES (16u << 10) /* buffer for casts that cannot write directly into the box */

void move_device_begin(move_device *d, const move_piece *pieces, size_t n) {
    if (!d->staging) return;
    device_staging_cut(d->staging, READ_BATCHES);
    d->pieces = pieces;
    d->n = n;
}

/* Returns the address of byte `offset` of the box in the batch, and in *bytes the number of bytes
 * that are contiguous from there. Returns NULL if the batch does not contain this byte. */
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

/* Adds as much of the fragment as fits. Ends the walk if something remains. */
static int add_to_batch(void *ctx, const move_fragment *f) {
    staging_batch *b = ctx;
    uint64_t taken = 0;
    if (!f->piece->device) return 0;
    if (!device_staging_add(b, f->piece->box, f->piece->row->tensor.path, f->box_offset, f->bytes,
                            &taken))
        return 1;
    return taken < f->bytes;
}

/* Fills the batch with bytes from the device, starting at `offset` of p's box. */
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
    return core_fail(err, DCP_ERR_IO, "a source returned %d, which is not a status", status);
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

int move_box_fetch_summed(const move_piece *p, uint64_t dataset_offset, uint64_t offset,
                          uint64_t bytes, void *out, dcp_error *err) {
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
    return device_staging_order_after(d->staging, err);
}

/* Sends the batch and empties the next one. */
static int send_batch(staging *s, dcp_error *err) {
    staging_batch *b = &s->batches[s->turn];
    int status = b->n ? device_staging_send(s, b, STAGING_TO_DEVICE, err) : DCP_OK;
    s->turn = (s->turn + 1) % s->n;
    if (!status) status = device_staging_wait(s, &s->batches[s->turn], err);
    if (!status) device_staging_clear(&s->batches[s->turn]);
    return status;
}

/* Puts bytes into a box on a device. `path`, the tensor's path, must remain valid until
 * move_device_flush. */
static int move_device_put(move_device *d, const state_box *box, const char *path, uint64_t offset,
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

/* Puts bytes that have the box's own type. */
static int put_as_stored(const move_piece *p, uint64_t offset, const unsigned char *data,
                         uint64_t bytes, dcp_error *err) {
    if (!p->box->data)
        return move_device_put(p->device, p->box, p->row->tensor.path, offset, data, bytes, err);
    core_strides_put(p->box->data, p->box->strides, offset, bytes, data);
    return DCP_OK;
}

/* Converts `n` stored elements and puts them, starting at element number `first` of the box. */
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

/* Puts a part of one element, starting at its byte `at`. */
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

int move_box_put_summed(const move_piece *p, uint64_t dataset_offset, uint64_t offset,
                        const void *data, uint64_t bytes, dcp_error *err) {
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
