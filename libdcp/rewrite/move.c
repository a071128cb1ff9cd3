/* Moving the long runs of all new files of this rank. Parts are taken in the order in which their
 * elements lie in the whole tensor, so what several files have of the same old pages is moved in
 * one batch. Of four batches two are being read while the one before is put together and written.
 */
#include "rewrite/move.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/box.h"
#include "core/fail.h"
#include "rewrite/batch.h"

enum { BATCHES = IO_SLOTS, AHEAD = 2 };
#define HUGE_PAGE (2u << 20)

/* A bulk piece of a new file. */
typedef struct entry {
    const move_piece *piece;
    const io_file *file;
} entry;

typedef struct tensor_part {
    move_fragment what;
    const io_file *file;
    uint64_t place; /* of its first element, in the whole tensor */
} tensor_part;

typedef struct mover {
    rewrite *owner;
    io_queue *queue;
    unsigned char *memory;
    rewrite_batch *batches; /* in turn */
    uint64_t begun;         /* batches so far; the last one is being filled */
    uint64_t written;
    tensor_part *parts; /* of one tensor */
    size_t n, room;
    uint64_t part_bytes; /* at most, of the tensor's parts */
    const io_file *file; /* of the piece that is being cut into parts */
    dcp_error *err;
} mover;

static const rewrite_box *box_of(const move_piece *p) { return p->box->ctx; }

static int by_tensor(const void *a, const void *b) {
    const step_tensor *x = box_of(((const entry *)a)->piece)->tensor,
                      *y = box_of(((const entry *)b)->piece)->tensor;
    return (x > y) - (x < y);
}

static int by_place_in_tensor(const void *a, const void *b) {
    const tensor_part *x = a, *y = b;
    if (x->place != y->place) return x->place < y->place ? -1 : 1;
    return (x->what.piece > y->what.piece) - (x->what.piece < y->what.piece);
}

/* Where an element of the box, by its number there, is in the whole tensor. */
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
            tensor_part *grown = realloc(m->parts, room * sizeof *grown);
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

/* The more files share a row of the tensor, the smaller are the parts, so that all that a stretch
 * of it has in them fits into a batch. */
static uint64_t part_bytes(const rewrite_box *b) {
    uint64_t row = 1, held = 1, bytes;
    for (uint32_t d = 1; d < b->tensor->tensor.ndim; d++) {
        row *= b->tensor->tensor.shape[d];
        held *= b->box.count[d];
    }
    bytes = IO_SLOT_BYTES / ((row + held - 1) / held) / PAGE_BYTES * PAGE_BYTES;
    return bytes < REWRITE_LEAST ? REWRITE_LEAST : bytes;
}

static int end_batch(mover *m) {
    unsigned slot = (unsigned)(m->written % BATCHES);
    io_queue_wait(m->queue, slot);
    m->written++;
    return rewrite_batch_write(&m->batches[slot], m->queue, slot, m->err);
}

/* Starts reading the batch that was filled, and makes room for the next one. */
static int next_batch(mover *m) {
    int status = rewrite_stopped(m->owner, m->err);
    if (status) return status;
    if (m->begun) {
        unsigned slot = (unsigned)((m->begun - 1) % BATCHES);
        rewrite_batch_read(&m->batches[slot], m->queue, slot);
        if (m->begun > AHEAD) status = end_batch(m);
    }
    unsigned next = (unsigned)(m->begun++ % BATCHES);
    io_queue_wait(m->queue, next);
    rewrite_batch_clear(&m->batches[next]);
    return status ? status : io_queue_status(m->queue, m->err);
}

static int batch_part(mover *m, const move_fragment *what, const io_file *file) {
    int status = DCP_OK;
    rewrite_batch *b = &m->batches[(m->begun - 1) % BATCHES];
    if (rewrite_batch_add(b, what, file)) return DCP_OK;
    if (b->n_parts) {
        status = next_batch(m);
        return status ? status : batch_part(m, what, file);
    }
    move_fragment half = *what;
    half.bytes = what->bytes / 2 / PAGE_BYTES * PAGE_BYTES;
    status = batch_part(m, &half, file);
    half.file_offset += half.bytes;
    half.dataset_offset += half.bytes;
    half.box_offset += half.bytes;
    half.bytes = what->bytes - half.bytes;
    return status ? status : batch_part(m, &half, file);
}

/* All pieces of one tensor. */
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
        status = batch_part(m, &m->parts[i].what, m->parts[i].file);
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

/* The bulk pieces of the images, by tensor. */
static int list_pieces(save_image *const *images, size_t n, entry **out, size_t *n_out,
                       dcp_error *err) {
    size_t room = 1, at = 0;
    for (size_t i = 0; i < n; i++) room += images[i]->n_pieces;
    entry *list = malloc(room * sizeof *list);
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

static int open_files(dcp_checkpoint *from, dcp_error *err) {
    int status = DCP_OK;
    for (size_t f = 0; f < from->n_files && !status; f++)
        status = step_file_open(&from->files[f], err);
    return status;
}

static int make_batches(mover *m) {
    uint64_t each = m->owner->memory_bytes / BATCHES / PAGE_BYTES * PAGE_BYTES;
    m->batches = calloc(BATCHES, sizeof *m->batches);
    if (!m->batches || posix_memalign((void **)&m->memory, HUGE_PAGE, each * BATCHES))
        return core_fail_memory(m->err, each * BATCHES);
    madvise(m->memory, each * BATCHES, MADV_HUGEPAGE); /* fewer faults and pins */
    for (size_t i = 0; i < BATCHES; i++)
        m->batches[i] =
            (rewrite_batch){.owner = m->owner, .memory = m->memory + i * each, .capacity = each};
    return DCP_OK;
}

int rewrite_move(void *ctx, save_image *const *images, size_t n, dcp_error *err) {
    mover m = {.owner = ctx, .err = err};
    entry *entries = NULL;
    size_t n_entries = 0;
    int status = list_pieces(images, n, &entries, &n_entries, err);
    if (!status && n_entries) {
        status = open_files(m.owner->from, err);
        if (!status) status = make_batches(&m);
        if (!status) status = io_queue_create(&m.queue, err);
        if (!status) status = move_tensors(&m, entries, n_entries);
        if (!status) {
            io_queue_drain(m.queue);
            status = io_queue_status(m.queue, err);
        }
    }
    io_queue_destroy(m.queue);
    free(m.memory);
    free(m.batches);
    free(m.parts);
    free(entries);
    return status;
}
