/* Planning a batch, and moving it. Near pieces of an old file become one extent, and what lies
 * between them is read along. */
#include "rewrite/batch.h"

#include <string.h>

#include "core/bytes.h"
#include "move/progress.h"

#define JOIN_BYTES (32u << 10) /* of gaps that are read along */

/* A part being added. */
typedef struct trial {
    rewrite_batch *b;
    size_t hint;        /* the extent met last */
    uint64_t grown;     /* bytes that the extents got */
    uint64_t wanted;    /* bytes of pages that the part needs */
    rewrite_extent all; /* the part's bytes, where they lie in one row */
    int is_one;
} trial;

/* Whether the pages belong to the extent, or near it. */
static int touches(const rewrite_extent *e, const rewrite_extent *pages) {
    return e->file == pages->file && pages->from <= e->to + JOIN_BYTES &&
           e->from <= pages->to + JOIN_BYTES;
}

/* The extent that the pages touch; n_extents: none. */
static size_t find_near(const trial *t, const rewrite_extent *pages) {
    const rewrite_batch *b = t->b;
    if (t->hint < b->n_extents && touches(&b->extents[t->hint], pages)) return t->hint;
    for (size_t i = b->n_extents; i-- > 0;)
        if (touches(&b->extents[i], pages)) return i;
    return b->n_extents;
}

/* 1 where the extents are full. */
static int add_pages(trial *t, const rewrite_extent *pages) {
    rewrite_batch *b = t->b;
    size_t i = find_near(t, pages);
    if (i == REWRITE_EXTENTS) return 1;
    t->hint = i;
    rewrite_extent *e = &b->extents[i];
    uint64_t before = e->to - e->from;
    if (i == b->n_extents) {
        *e = *pages;
        before = 0;
        b->n_extents++;
    }
    if (pages->from < e->from) e->from = pages->from;
    if (pages->to > e->to) e->to = pages->to;
    t->grown += e->to - e->from - before;
    return 0;
}

static int plan_run(void *ctx, const rewrite_run *run) {
    trial *t = ctx;
    step_file *file = run->piece->file;
    uint64_t from = run->piece->row->offset + run->dataset_offset, to = from + run->bytes;
    const rewrite_extent pages = {file, from / PAGE_BYTES * PAGE_BYTES, core_round_to_pages(to),
                                  NULL};
    if (!t->all.file)
        t->all = (rewrite_extent){file, from, to, NULL};
    else if (t->is_one && t->all.file == file && t->all.to == from)
        t->all.to = to;
    else
        t->is_one = 0;
    t->wanted += pages.to - pages.from;
    return add_pages(t, &pages) || t->b->used + t->grown > t->b->capacity;
}

/* Whether the part may come to what is in the batch. */
static int is_welcome(const trial *t, uint64_t bytes) {
    const rewrite_batch *b = t->b;
    if (b->used + bytes > b->capacity || b->n_parts == REWRITE_PARTS) return 0;
    return b->used < b->capacity / 2 || t->grown < t->wanted / 2;
}

int rewrite_batch_add(rewrite_batch *b, const move_fragment *what, const io_file *file) {
    trial t = {.b = b, .hint = b->n_extents, .is_one = 1};
    size_t before = b->n_extents;
    memcpy(b->before, b->extents, before * sizeof *b->extents);
    int full = rewrite_runs(what->piece->box->ctx, what->box_offset, what->bytes, plan_run, &t);
    rewrite_part part = {.what = *what, .file = file, .source = t.all};
    part.in_place = !full && t.is_one && t.all.from % file->memory_align == 0;
    uint64_t bytes = t.grown + (part.in_place ? 0 : what->bytes);
    if (full || !is_welcome(&t, bytes)) {
        b->n_extents = before;
        memcpy(b->extents, b->before, before * sizeof *b->extents);
        if (b->n_parts || what->bytes > REWRITE_LEAST) return 0;
        part.by_runs = 1;
        part.in_place = 0;
        bytes = what->bytes;
    }
    b->parts[b->n_parts++] = part;
    b->used += bytes;
    return 1;
}

void rewrite_batch_read(rewrite_batch *b, io_queue *queue, unsigned slot) {
    unsigned char *memory = b->memory;
    for (size_t i = 0; i < b->n_extents; i++) {
        rewrite_extent *e = &b->extents[i];
        uint64_t end = e->to < e->file->ub.file_bytes ? e->to : e->file->ub.file_bytes;
        e->memory = memory;
        memory += e->to - e->from;
        for (uint64_t at = e->from; at < end; at += IO_SLOT_BYTES) {
            uint64_t bytes = end - at < IO_SLOT_BYTES ? end - at : IO_SLOT_BYTES;
            io_queue_read(queue, slot, &e->file->file, e->memory + (at - e->from), bytes, at);
        }
    }
    io_queue_send(queue);
}

static const unsigned char *find_bytes(const rewrite_batch *b, size_t *hint, const step_file *file,
                                       uint64_t from, uint64_t to) {
    for (size_t k = 0; k < b->n_extents; k++) {
        size_t i = (*hint + k) % b->n_extents;
        const rewrite_extent *e = &b->extents[i];
        if (e->file != file || from < e->from || to > e->to) continue;
        *hint = i;
        return e->memory + (from - e->from);
    }
    return NULL; /* every run was planned: never */
}

typedef struct gathering {
    const rewrite_batch *b;
    size_t hint;
    unsigned char *out;
} gathering;

static int copy_run(void *ctx, const rewrite_run *run) {
    gathering *g = ctx;
    uint64_t from = run->piece->row->offset + run->dataset_offset;
    memcpy(g->out + run->at, find_bytes(g->b, &g->hint, run->piece->file, from, from + run->bytes),
           run->bytes);
    return 0;
}

/* The part's bytes, which are put together at *room where they don't lie ready. */
static int make_part(const rewrite_batch *b, const rewrite_part *part, unsigned char **room,
                     const unsigned char **data, dcp_error *err) {
    const move_fragment *f = &part->what;
    size_t hint = 0;
    if (part->in_place) {
        *data = find_bytes(b, &hint, part->source.file, part->source.from, part->source.to);
        return DCP_OK;
    }
    *data = *room;
    *room += f->bytes;
    void *box = f->piece->box->ctx;
    if (part->by_runs) return rewrite_fetch(box, f->box_offset, f->bytes, (void *)*data, err);
    gathering g = {b, 0, (unsigned char *)*data};
    return rewrite_runs(box, f->box_offset, f->bytes, copy_run, &g);
}

int rewrite_batch_write(rewrite_batch *b, io_queue *queue, unsigned slot, dcp_error *err) {
    unsigned char *room = b->memory;
    int status = io_queue_status(queue, err);
    for (size_t i = 0; i < b->n_extents; i++) room += b->extents[i].to - b->extents[i].from;
    for (size_t i = 0; i < b->n_parts && !status; i++) {
        const rewrite_part *part = &b->parts[i];
        const move_fragment *f = &part->what;
        const unsigned char *data;
        status = make_part(b, part, &room, &data, err);
        if (status) break;
        io_queue_write(queue, slot, part->file, data, f->bytes, f->file_offset);
        io_queue_send(queue);
        move_piece_sum(f->piece, f->dataset_offset, data, f->bytes);
        move_progress_written(b->owner->progress, f->bytes);
        status = io_queue_status(queue, err);
    }
    return status;
}

void rewrite_batch_clear(rewrite_batch *b) { b->n_extents = b->n_parts = b->used = 0; }
