/* Finds the datasets that hold the elements of a box to be written, and reads small parts of the
 * box. */
#include "rewrite/move.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/box.h"
#include "core/bytes.h"
#include "core/fail.h"
#include "io/buffers.h"
#include "io/queue.h"
#include "move/piece.h"
#include "move/transfer.h"
#include "reader/checkpoint.h"
#include "reader/view.h"

/* A walk over bytes [low, high) of the dense box. */
typedef struct run_walk {
    uint64_t low, high;
    rewrite_run_fn fn;
    void *ctx;
} run_walk;

/* Walks the runs of one dataset that `copy` describes; they belong to a part of the box that begins
 * at byte `at`. The walk's ends may lie inside elements. */
static int walk_dataset(const run_walk *w, const reader_dataset *p, const box_copy *copy,
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
    const reader_tensor *t = box->tensor;
    const reader_datasets *known = reader_view_of(&box->owner->view, box->owner->from, t);
    const reader_dataset *pieces = known->datasets;
    const run_walk w = {offset, offset + bytes, fn, ctx};
    uint64_t size = dcp_dtype_bytes(t->tensor.dtype), n;
    uint64_t end = (offset + bytes + size - 1) / size;
    uint32_t dims = core_box_dims(t->tensor.ndim);
    int status = DCP_OK;
    for (uint64_t at = offset / size; at < end && !status; at += n) {
        dcp_box part;
        size_t k, last;
        n = dcp_box_slice(dims, &box->box, at, end - at, &part);
        reader_join_near(t, known, &part, &k, &last);
        for (; k < last && !status; k++) {
            box_copy copy;
            if (format_index_shared(pieces[k].row, &part, &copy))
                status = walk_dataset(&w, &pieces[k], &copy, at * size);
        }
    }
    return status;
}

enum {
    SPAN_RUNS = 256, /* maximum number of short runs that are read together */
    JOIN_BYTES = 4096,
};

/* Collects runs of one dataset that are close to each other, and reads them together. */
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
    const reader_dataset *p = first->piece;
    uint64_t from = p->row->offset + first->dataset_offset;
    uint64_t bytes = last->dataset_offset + last->bytes - first->dataset_offset;
    unsigned char *to = s->n == 1 ? s->out + first->at : s->owner->scratch;
    int status = format_file_read(p->file, to, bytes, from, s->err);
    for (size_t i = 0; i < s->n && s->n > 1 && !status; i++)
        memcpy(s->out + s->runs[i].at, to + (s->runs[i].dataset_offset - first->dataset_offset),
               s->runs[i].bytes);
    s->n = 0;
    return status;
}

/* Returns true if the run can be read together with the collected runs. */
static bool joins(const span_reader *s, const rewrite_run *run) {
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

/* Parts of new files are moved in the order of their elements in the whole tensor, so parts of
 * several new files that need the same old pages are moved in one batch. There are four batches:
 * two are being read while the one before them is assembled and written. */

/* Parts of new files that are moved together form a batch. The pages of the old files that these
 * parts need are read together, and each page only once. Then the parts are assembled and written.
 * Nearby pieces of an old file are joined into one extent, and the bytes between them are read as
 * well. */
enum { BATCH_EXTENTS = 512, BATCH_PARTS = 256 };

/* Pages of an old file. */
typedef struct extent {
    format_file *file;
    uint64_t from, to;
    unsigned char *memory;
} extent;

/* Whole pages of a new file. */
typedef struct batch_part {
    move_fragment what; /* a part of a bulk move_piece */
    io_file *file;
    bool in_place; /* its bytes are contiguous in one extent, at `source` */
    extent source; /* [from, to) in bytes, not in pages */
    bool by_runs;  /* its runs are too scattered for extents and are read one by one */
} batch_part;

typedef struct batch {
    rewrite *owner;
    unsigned char *memory; /* page-aligned; borrowed */
    uint64_t capacity, used;
    /* before: a copy of `extents` from before the current part was added */
    extent extents[BATCH_EXTENTS], before[BATCH_EXTENTS];
    batch_part parts[BATCH_PARTS];
    size_t n_extents, n_parts;
} batch;

#define BATCH_LEAST (64u << 10) /* a part of this size always fits into an empty batch */
#define JOIN_BYTES (32u << 10)  /* maximum gap between joined pieces */

/* A part that is being added. */
typedef struct trial {
    batch *b;
    size_t hint;     /* the extent that was touched last */
    uint64_t grown;  /* bytes added to the extents */
    uint64_t wanted; /* size of the pages that the part needs */
    extent all;      /* the part's bytes, if they are contiguous */
    bool is_one;
} trial;

/* Returns true if the pages overlap the extent or are close to it. */
static bool touches(const extent *e, const extent *pages) {
    return e->file == pages->file && pages->from <= e->to + JOIN_BYTES &&
           e->from <= pages->to + JOIN_BYTES;
}

/* Returns the index of an extent that the pages touch, or n_extents if there is none. */
static size_t find_near(const trial *t, const extent *pages) {
    const batch *b = t->b;
    if (t->hint < b->n_extents && touches(&b->extents[t->hint], pages)) return t->hint;
    for (size_t i = b->n_extents; i-- > 0;)
        if (touches(&b->extents[i], pages)) return i;
    return b->n_extents;
}

/* Adds the pages to an extent that they touch, or to a new one. Returns true if there is no room
 * for another extent. */
static bool add_pages(trial *t, const extent *pages) {
    batch *b = t->b;
    size_t i = find_near(t, pages);
    if (i == BATCH_EXTENTS) return true;
    t->hint = i;
    extent *e = &b->extents[i];
    uint64_t before = e->to - e->from;
    if (i == b->n_extents) {
        *e = *pages;
        before = 0;
        b->n_extents++;
    }
    if (pages->from < e->from) e->from = pages->from;
    if (pages->to > e->to) e->to = pages->to;
    t->grown += e->to - e->from - before;
    return false;
}

static int plan_run(void *ctx, const rewrite_run *run) {
    trial *t = ctx;
    format_file *file = run->piece->file;
    uint64_t from = run->piece->row->offset + run->dataset_offset, to = from + run->bytes;
    const extent pages = {file, from / PAGE_BYTES * PAGE_BYTES, core_round_to_pages(to), NULL};
    if (!t->all.file)
        t->all = (extent){file, from, to, NULL};
    else if (t->is_one && t->all.file == file && t->all.to == from)
        t->all.to = to;
    else
        t->is_one = false;
    t->wanted += pages.to - pages.from;
    return add_pages(t, &pages) || t->b->used + t->grown > t->b->capacity;
}

/* Returns true if the part should be added to the batch. */
static bool is_welcome(const trial *t, uint64_t bytes) {
    const batch *b = t->b;
    if (b->used + bytes > b->capacity || b->n_parts == BATCH_PARTS) return false;
    return b->used < b->capacity / 2 || t->grown < t->wanted / 2;
}

/* Adds the part to the batch and returns true. Returns false if there is no room, or if the batch
 * is half full and at least half of the part's pages would have to be added. A part that does not
 * fit into an empty batch must be cut in two. */
static bool add_to_batch(batch *b, const move_fragment *what, io_file *file) {
    trial t = {.b = b, .hint = b->n_extents, .is_one = true};
    size_t before = b->n_extents;
    memcpy(b->before, b->extents, before * sizeof *b->extents);
    int full = rewrite_runs(what->piece->box->ctx, what->box_offset, what->bytes, plan_run, &t);
    batch_part part = {.what = *what, .file = file, .source = t.all};
    part.in_place = !full && t.is_one && t.all.from % file->memory_align == 0;
    uint64_t bytes = t.grown + (part.in_place ? 0 : what->bytes);
    if (full || !is_welcome(&t, bytes)) {
        b->n_extents = before;
        memcpy(b->extents, b->before, before * sizeof *b->extents);
        if (b->n_parts || what->bytes > BATCH_LEAST) return false;
        part.by_runs = true;
        part.in_place = false;
        bytes = what->bytes;
    }
    assert(b->n_parts < BATCH_PARTS && b->n_extents <= BATCH_EXTENTS);
    b->parts[b->n_parts++] = part;
    b->used += bytes;
    return true;
}

/* Starts to read the batch's extents. */
static void read_batch(batch *b, io_queue *queue, unsigned slot) {
    unsigned char *memory = b->memory;
    for (size_t i = 0; i < b->n_extents; i++) {
        extent *e = &b->extents[i];
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

static const unsigned char *find_bytes(const batch *b, size_t *hint, const format_file *file,
                                       uint64_t from, uint64_t to) {
    for (size_t k = 0; k < b->n_extents; k++) {
        size_t i = (*hint + k) % b->n_extents;
        const extent *e = &b->extents[i];
        if (e->file != file || from < e->from || to > e->to) continue;
        *hint = i;
        return e->memory + (from - e->from);
    }
    return NULL; /* never reached: the extents include every run */
}

typedef struct gathering {
    const batch *b;
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

/* Sets *data to the part's bytes. They are assembled at *room unless they are contiguous
 * already. */
static int make_part(const batch *b, const batch_part *part, unsigned char **room,
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

/* Requires that the batch has been read. Assembles its parts, adds them to the checksums and starts
 * to write them. */
static int write_batch(batch *b, io_queue *queue, unsigned slot, dcp_error *err) {
    unsigned char *room = b->memory;
    int status = io_queue_status(queue, err);
    for (size_t i = 0; i < b->n_extents; i++) room += b->extents[i].to - b->extents[i].from;
    for (size_t i = 0; i < b->n_parts && !status; i++) {
        const batch_part *part = &b->parts[i];
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

/* Empties the batch. None of its requests may be in flight. */
static void clear_batch(batch *b) { b->n_extents = b->n_parts = b->used = 0; }

enum { BATCHES = IO_SLOTS, AHEAD = 2 };

/* A bulk piece of a new file. */
typedef struct entry {
    const move_piece *piece;
    io_file *file;
} entry;

typedef struct tensor_part {
    move_fragment what;
    io_file *file;
    uint64_t place; /* number of its first element in the whole tensor */
} tensor_part;

typedef struct mover {
    rewrite *owner;
    io_queue *queue;
    unsigned char *memory;
    batch *batches; /* used in turn */
    uint64_t begun; /* number of batches begun so far; the last one is being filled */
    uint64_t written;
    tensor_part *parts; /* parts of one tensor */
    size_t n, room;
    uint64_t part_bytes; /* maximum size of the tensor's parts */
    io_file *file;       /* file of the piece that is being cut into parts */
    dcp_error *err;
} mover;

static const rewrite_box *box_of(const move_piece *p) { return p->box->ctx; }

static int by_tensor(const void *a, const void *b) {
    const reader_tensor *x = box_of(((const entry *)a)->piece)->tensor,
                        *y = box_of(((const entry *)b)->piece)->tensor;
    return (x > y) - (x < y);
}

static int by_place_in_tensor(const void *a, const void *b) {
    const tensor_part *x = a, *y = b;
    if (x->place != y->place) return x->place < y->place ? -1 : 1;
    return (x->what.piece > y->what.piece) - (x->what.piece < y->what.piece);
}

/* Returns the number, in the whole tensor, of element `elem` of the box. */
static uint64_t place_of(const rewrite_box *b, uint64_t elem) {
    uint32_t dims = core_box_dims(b->tensor->tensor.ndim);
    uint64_t place = 0;
    dcp_box one;
    dcp_box_slice(dims, &b->box, elem, 1, &one);
    for (uint32_t d = 0; d < dims; d++) place = place * b->tensor->tensor.shape[d] + one.start[d];
    return place;
}

static int add_tensor_part(void *ctx, const move_fragment *f) {
    mover *m = ctx;
    const rewrite_box *box = box_of(f->piece);
    uint64_t size = dcp_dtype_bytes(box->tensor->tensor.dtype);
    for (uint64_t done = 0; done < f->bytes; done += m->part_bytes) {
        if (m->n == m->room) {
            size_t room = m->room ? 2 * m->room : 256;
            tensor_part *grown = core_array_grow(m->parts, room, sizeof *grown);
            if (!grown) return core_fail_memory(m->err, room * sizeof *grown);
            m->parts = grown;
            m->room = room;
        }
        move_fragment cut = *f;
        cut.file_offset += done;
        cut.dataset_offset += done;
        cut.box_offset += done;
        cut.bytes = f->bytes - done < m->part_bytes ? f->bytes - done : m->part_bytes;
        m->parts[m->n++] = (tensor_part){cut, m->file, place_of(box, cut.box_offset / size)};
    }
    return DCP_OK;
}

/* Returns the size of the parts. The more files share a row of the tensor, the smaller the parts
 * are, so all parts that come from the same stretch of the tensor fit into one batch. */
static uint64_t part_bytes(const rewrite_box *b) {
    uint64_t row = 1, held = 1, bytes;
    for (uint32_t d = 1; d < b->tensor->tensor.ndim; d++) {
        row *= b->tensor->tensor.shape[d];
        held *= b->box.count[d];
    }
    bytes = IO_SLOT_BYTES / ((row + held - 1) / held) / PAGE_BYTES * PAGE_BYTES;
    return bytes < BATCH_LEAST ? BATCH_LEAST : bytes;
}

static int end_batch(mover *m) {
    unsigned slot = (unsigned)(m->written % BATCHES);
    io_queue_wait(m->queue, slot);
    m->written++;
    return write_batch(&m->batches[slot], m->queue, slot, m->err);
}

/* Starts to read the batch that was filled, and empties the next one. */
static int next_batch(mover *m) {
    int status = move_progress_poll(m->owner->progress, m->err);
    if (status) return status;
    if (m->begun) {
        unsigned slot = (unsigned)((m->begun - 1) % BATCHES);
        read_batch(&m->batches[slot], m->queue, slot);
        if (m->begun > AHEAD) status = end_batch(m);
    }
    unsigned next = (unsigned)(m->begun++ % BATCHES);
    io_queue_wait(m->queue, next);
    clear_batch(&m->batches[next]);
    return status ? status : io_queue_status(m->queue, m->err);
}

static int move_part(mover *m, const move_fragment *what, io_file *file) {
    int status = DCP_OK;
    batch *b = &m->batches[(m->begun - 1) % BATCHES];
    if (add_to_batch(b, what, file)) return DCP_OK;
    if (b->n_parts) {
        status = next_batch(m);
        return status ? status : move_part(m, what, file);
    }
    move_fragment half = *what;
    half.bytes = what->bytes / 2 / PAGE_BYTES * PAGE_BYTES;
    status = move_part(m, &half, file);
    half.file_offset += half.bytes;
    half.dataset_offset += half.bytes;
    half.box_offset += half.bytes;
    half.bytes = what->bytes - half.bytes;
    return status ? status : move_part(m, &half, file);
}

/* Moves all pieces of one tensor. */
static int move_tensor(mover *m, const entry *entries, size_t n) {
    int status = DCP_OK;
    m->n = 0;
    for (size_t i = 0; i < n && !status; i++) {
        m->file = entries[i].file;
        m->part_bytes = part_bytes(box_of(entries[i].piece));
        status = move_bulk_parts(entries[i].piece, 1, add_tensor_part, m);
    }
    if (m->n) qsort(m->parts, m->n, sizeof *m->parts, by_place_in_tensor);
    for (size_t i = 0; i < m->n && !status; i++)
        status = move_part(m, &m->parts[i].what, m->parts[i].file);
    return status;
}

static int move_tensors(mover *m, const entry *entries, size_t n) {
    int status = next_batch(m);
    for (size_t i = 0, end; i < n && !status; i = end) {
        for (end = i + 1; end < n && !by_tensor(&entries[i], &entries[end]);) end++;
        status = move_tensor(m, entries + i, end - i);
    }
    if (!status) status = next_batch(m);
    while (!status && m->written + 1 < m->begun) status = end_batch(m);
    return status;
}

/* Lists the bulk pieces of the images, sorted by tensor. */
static int list_pieces(save_image *const *images, size_t n, entry **out, size_t *n_out,
                       dcp_error *err) {
    size_t room = 1, at = 0;
    for (size_t i = 0; i < n; i++) room += images[i]->n_pieces;
    entry *list = core_array(room, sizeof *list);
    if (!list) return core_fail_memory(err, room * sizeof *list);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < images[i]->n_pieces; k++)
            if (images[i]->pieces[k].bulk)
                list[at++] = (entry){&images[i]->pieces[k], &images[i]->file};
    qsort(list, at, sizeof *list, by_tensor);
    *out = list;
    *n_out = at;
    return DCP_OK;
}

static uint64_t batch_bytes(const mover *m) {
    return m->owner->memory_bytes / BATCHES / PAGE_BYTES * PAGE_BYTES;
}

static int make_batches(mover *m) {
    const uint64_t each = batch_bytes(m);
    m->batches = calloc(BATCHES, sizeof *m->batches);
    m->memory = io_buffers_create(each * BATCHES);
    if (!m->batches || !m->memory) return core_fail_memory(m->err, each * BATCHES);
    for (size_t i = 0; i < BATCHES; i++)
        m->batches[i] =
            (batch){.owner = m->owner, .memory = m->memory + i * each, .capacity = each};
    return DCP_OK;
}

int rewrite_move(void *ctx, save_image *const *images, size_t n, dcp_error *err) {
    mover m = {.owner = ctx, .err = err};
    entry *entries = NULL;
    size_t n_entries = 0;
    int status = list_pieces(images, n, &entries, &n_entries, err);
    if (!status && n_entries) {
        status = make_batches(&m);
        if (!status) status = io_queue_create(&m.queue, err);
        if (!status) status = move_tensors(&m, entries, n_entries);
        if (!status) {
            io_queue_drain(m.queue);
            status = io_queue_status(m.queue, err);
        }
    }
    io_queue_destroy(m.queue);
    io_buffers_free(m.memory, batch_bytes(&m) * BATCHES);
    free(m.batches);
    free(m.parts);
    free(entries);
    return status;
}
