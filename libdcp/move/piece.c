/* Pieces and their fragments. */
#include "move/piece.h"

#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "core/search.h"
#include "core/strides.h"
#include "io/file.h"

void move_piece_set_copy(move_piece *p, const box_copy *copy) {
    p->copy = core_box_copy_keep(copy);
    p->page_bytes = (uint32_t)io_page_bytes();
    p->bulk = copy->run_bytes >= MOVE_BULK_BYTES && p->file_offset % PAGE_BYTES == 0;
}

int move_pieces_have_copies(const move_piece *pieces, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!pieces[i].copy) return 0;
    return 1;
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

/* Tensors mostly lie in the file in the order of their paths, which is that of the pieces. */
static int are_sorted(const move_piece *pieces, size_t n) {
    for (size_t i = 1; i < n; i++)
        if (order_by_offset(&pieces[i - 1], &pieces[i]) > 0) return 0;
    return 1;
}

void move_pieces_sort(move_piece *pieces, size_t n) {
    if (!are_sorted(pieces, n)) qsort(pieces, n, sizeof *pieces, order_by_offset);
}

size_t move_pieces_find(const move_piece *pieces, size_t n, uint64_t file_offset) {
    return core_first_from(&pieces->file_offset, n, sizeof *pieces, file_offset);
}

const unsigned char *move_piece_memory(const move_piece *p, uint64_t offset, uint64_t bytes) {
    if (!p->box) return p->raw + offset;
    if (!p->box->data) return NULL;
    uint64_t contiguous;
    const unsigned char *memory =
        core_strides_find(p->box->data, p->box->strides, offset, &contiguous);
    return contiguous < bytes ? NULL : memory;
}

/* To the end of the block of a dataset of `total` bytes that `offset` is in. */
static uint64_t block_left(uint64_t total, uint64_t offset) {
    uint64_t b = offset / BLOCK_BYTES;
    return b * BLOCK_BYTES + step_index_block_bytes(total, b) - offset;
}

/* The raw checksum of bytes that lie in one block. */
static void add_sum(uint64_t *sums, uint64_t total, uint64_t offset, uint64_t bytes, uint64_t raw) {
    sums[offset / BLOCK_BYTES] ^= core_crc64_shift(raw, block_left(total, offset) - bytes);
}

/* Where a byte of the dataset lies in the whole tensor; *left: of the run that it is in. */
static uint64_t in_tensor(const move_global *g, uint64_t offset, uint64_t *left) {
    uint64_t run = g->copy.run_bytes, at = offset % run, start, b;
    core_box_copy_run(&g->copy, offset / run, &start, &b);
    *left = run - at;
    return start + at;
}

/* Where a byte of the dataset lies in the box. */
static uint64_t in_box(const move_piece *p, uint64_t offset) {
    uint64_t a, b;
    core_box_copy_run(p->copy, core_box_copy_find(p->copy, offset), &a, &b);
    return b + (offset - a);
}

static uint64_t box_bytes(const move_piece *p) { return p->copy->runs * p->copy->run_bytes; }

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

/* Cut at the blocks of all, so that each byte is read once. */
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

/* Moves *at past what is skipped there, and *end back to where something is skipped next. */
static void skip_spans(const move_span_list *skip, uint64_t *at, uint64_t *end) {
    if (!skip || !skip->n) return;
    size_t low = core_first_from(&skip->list->to, skip->n, sizeof *skip->list, *at + 1);
    if (low == skip->n) return;
    if (skip->list[low].from <= *at) *at = skip->list[low++].to;
    if (low < skip->n && skip->list[low].from < *end) *end = skip->list[low].from;
}

typedef struct fragment_walk {
    const move_piece *piece;
    uint64_t low, high; /* of the file */
    move_fragment_fn fn;
    void *ctx;
} fragment_walk;

/* The part of [start, end) of run's bytes, which begin at run_start in the file, that lies in the
 * walk's range. */
static int call_with_parts(const fragment_walk *w, uint64_t run_start, uint64_t box_offset,
                           uint64_t start, uint64_t end) {
    if (start < w->low) start = w->low;
    if (end > w->high) end = w->high;
    while (start < end) {
        uint64_t part_end = end;
        skip_spans(w->piece->skip, &start, &part_end);
        if (start >= part_end) break;
        move_fragment f = {w->piece, start, start - w->piece->file_offset,
                           box_offset + (start - run_start), part_end - start};
        int stop = w->fn(w->ctx, &f);
        if (stop) return stop;
        start = part_end;
    }
    return 0;
}

static int walk_piece(const fragment_walk *w) {
    const move_piece *p = w->piece;
    uint64_t skip = w->low > p->file_offset ? w->low - p->file_offset : 0;
    for (uint64_t i = core_box_copy_find(p->copy, skip); i < p->copy->runs; i++) {
        uint64_t a, b;
        core_box_copy_run(p->copy, i, &a, &b);
        uint64_t start = p->file_offset + a, end = start + p->copy->run_bytes;
        if (start >= w->high) return 0;
        uint64_t from = end, to = end; /* of what goes by itself */
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

static int walk_bulk_run(const move_piece *p, uint64_t run, move_fragment_fn fn, void *ctx) {
    uint64_t a, b, at, to;
    core_box_copy_run(p->copy, run, &a, &b);
    move_piece_interior(p, run, &at, &to);
    while (at < to) {
        uint64_t part_end = to;
        skip_spans(p->skip, &at, &part_end);
        if (at >= part_end) break;
        uint64_t dataset_offset = at - p->file_offset;
        uint64_t block_end = p->file_offset + (dataset_offset / BLOCK_BYTES + 1) * BLOCK_BYTES;
        uint64_t end = block_end < part_end ? block_end : part_end;
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
