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
    p->page_bytes = io_page_bytes() & 0x7fffffffu;
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
    if (!p->box->data || p->cast) return NULL;
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

int move_piece_turn(const move_piece *p, uint64_t from, uint64_t *to) {
    if (!p->holders) return 1;
    uint64_t number = (p->file_offset + from) / MOVE_TURN_BYTES;
    *to = core_min_u64(*to, (number + 1) * MOVE_TURN_BYTES - p->file_offset);
    return number % p->holders == p->turn;
}

/* Bytes of the box, all of which is in the piece, before that offset of the dataset. */
static uint64_t box_bytes_before(const move_piece *p, uint64_t offset) {
    uint64_t a, b, run = core_box_copy_find(p->copy, offset);
    if (run == p->copy->runs) return box_bytes(p);
    core_box_copy_run(p->copy, run, &a, &b);
    return run * p->copy->run_bytes + (offset > a ? offset - a : 0);
}

static int walk_turns(const move_piece *p, int wants_own, move_box_fn fn, void *ctx) {
    uint64_t at = 0;
    int status = DCP_OK;
    for (uint64_t from = p->copy->base_a, to; at < box_bytes(p) && !status; from = to) {
        to = p->bytes;
        int own = move_piece_turn(p, from, &to);
        uint64_t before = box_bytes_before(p, to);
        if (own == wants_own && before > at) status = fn(ctx, p, at, before - at);
        at = before;
    }
    return status;
}

int move_piece_others(const move_piece *p, move_box_fn fn, void *ctx) {
    return walk_turns(p, 0, fn, ctx);
}

int move_piece_turns(const move_piece *p, move_box_fn fn, void *ctx) {
    return walk_turns(p, 1, fn, ctx);
}

static int count_others(void *ctx, const move_piece *p, uint64_t offset, uint64_t bytes) {
    (void)p, (void)offset;
    *(uint64_t *)ctx += bytes;
    return DCP_OK;
}

uint64_t move_piece_supplied(const move_piece *p) {
    uint64_t others = 0;
    if (p->holders) move_piece_others(p, count_others, &others);
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

void move_piece_sum_copy(const move_piece *p, uint64_t offset, void *to, const unsigned char *data,
                         uint64_t bytes) {
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

/* Moves *at past what is skipped there, and *end back to where something is skipped next; *at can
 * come to lie after *end. */
static void skip_spans(const move_span_list *skip, uint64_t *at, uint64_t *end) {
    if (!skip || !skip->n) return;
    size_t low = core_first_from(&skip->list->to, skip->n, sizeof *skip->list, *at + 1);
    if (low == skip->n) return;
    if (skip->list[low].from <= *at) *at = skip->list[low++].to;
    if (low < skip->n && skip->list[low].from < *end) *end = skip->list[low].from;
}

/* The same with what other holders supply. */
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

/* Whether this rank may supply any of [low, high) of the file: most walks are of a part with one
 * holder. */
static int may_supply(const move_piece *p, uint64_t low, uint64_t high) {
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

/* Where the part that begins at that place of the file ends: with the block, or where pages are as
 * large as blocks, with the page, so that requests are aligned in the file. */
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
