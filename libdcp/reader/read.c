/* Reading a box by whole blocks, each of which is checked in the buffer that it was read into. The
 * last block is kept, so reading a tensor from its beginning to its end reads each block once. Each
 * dcp_reader has its own buffer, and so does each thread that reads without a dcp_reader.
 * Everything else is shared and remains unchanged, except that reads open files. */
#include "reader/read.h"

#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/box.h"
#include "core/checks.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "dcp/inspect.h"
#include "reader/checkpoint.h"
#include "reader/view.h"

static int compare_block(const reader_dataset *p, uint64_t number, uint64_t crc, dcp_error *err) {
    if (crc == p->crcs[number]) return DCP_OK;
    core_fail_at(err, DCP_ERR_CORRUPT, p->file->path,
                 "tensor %s, block %llu: what was read differs from what was saved",
                 p->row->tensor.path, (unsigned long long)number);
    core_fail_offset(DCP_ERR_CORRUPT, p->row->offset + number * BLOCK_BYTES, err);
    return core_fail_tensor(DCP_ERR_CORRUPT, p->row->tensor.path, err);
}

int reader_read_compare_sum(const reader_dataset *p, uint64_t block, uint64_t sum, dcp_error *err) {
    uint64_t bytes = format_index_block_bytes(p->row->bytes, block);
    return compare_block(p, block, core_crc64_finish(sum, bytes), err);
}

int reader_read_compare_sums(const reader_dataset *p, const uint64_t *sums, dcp_error *err) {
    int status = DCP_OK;
    for (uint64_t b = 0; b < format_index_blocks(p->row->bytes) && !status; b++)
        status = reader_read_compare_sum(p, b, sums[b], err);
    return status;
}

static int make_cache(reader_block_cache *c, dcp_error *err) {
    c->row = NULL;
    if (!c->data && posix_memalign((void **)&c->data, PAGE_BYTES, BLOCK_BYTES))
        return core_fail_memory(err, BLOCK_BYTES);
    return DCP_OK;
}

int reader_read_block(reader_block_cache *c, const reader_dataset *p, uint64_t number,
                      dcp_error *err) {
    if (c->row == p->row && c->number == number) return DCP_OK;
    uint64_t bytes = format_index_block_bytes(p->row->bytes, number);
    int status = make_cache(c, err);
    if (!status)
        status =
            format_file_read(p->file, c->data, bytes, p->row->offset + number * BLOCK_BYTES, err);
    if (!status) status = compare_block(p, number, core_crc64(c->data, bytes), err);
    if (status) return status;
    c->row = p->row;
    c->number = number;
    return DCP_OK;
}

/* Reads bytes [offset, offset + bytes) of a dataset from checked blocks. */
static int reader_read_bytes(reader_block_cache *c, const reader_dataset *p, uint64_t offset,
                             uint64_t bytes, unsigned char *out, dcp_error *err) {
    while (bytes) {
        uint64_t number = offset / BLOCK_BYTES, at = offset % BLOCK_BYTES;
        int status = reader_read_block(c, p, number, err);
        if (status) return status;
        uint64_t part = BLOCK_BYTES - at < bytes ? BLOCK_BYTES - at : bytes;
        memcpy(out, c->data + at, part);
        out += part;
        offset += part;
        bytes -= part;
    }
    return DCP_OK;
}

static int read_dataset(reader_block_cache *c, const reader_dataset *p, const dcp_box *want,
                        unsigned char *data, dcp_error *err) {
    box_copy copy;
    if (!format_index_shared(p->row, want, &copy)) return DCP_OK;
    int status = DCP_OK;
    for (uint64_t i = 0, a, b; i < copy.runs && !status; i++) {
        core_box_copy_run(&copy, i, &a, &b);
        status = reader_read_bytes(c, p, a, copy.run_bytes, data + b, err);
    }
    return status;
}

/* Checks that the tensor exists, the box lies in it, and memory is given. */
static int check_read(const dcp_checkpoint *ckpt, const reader_tensor *t, const char *path,
                      const dcp_box *box, const void *data, dcp_error *err) {
    if (!t)
        return core_fail_tensor(core_fail_at(err, DCP_ERR_NOT_FOUND, ckpt->path,
                                             "tensor %s is not in the checkpoint", path),
                                path, err);
    for (uint32_t d = 0; d < core_box_dims(t->tensor.ndim); d++)
        if (box->start[d] > t->tensor.shape[d] ||
            box->count[d] > t->tensor.shape[d] - box->start[d])
            return core_fail_tensor(
                core_fail(err, DCP_ERR_ARG, "tensor %s: the box exceeds the tensor on dimension %u",
                          path, d),
                path, err);
    if (!data && t->bytes && dcp_box_elems(box, t->tensor.ndim))
        return core_fail_tensor(
            core_fail(err, DCP_ERR_ARG, "tensor %s: a box with elements needs memory", path), path,
            err);
    return DCP_OK;
}

/* Reads the box from the known datasets near it. */
static int read_known(const reader_tensor *t, const reader_datasets *known, reader_block_cache *c,
                      const dcp_box *box, void *data, dcp_error *err) {
    int status = DCP_OK;
    size_t k, end;
    reader_join_near(t, known, box, &k, &end);
    for (; k < end && !status; k++) status = read_dataset(c, &known->datasets[k], box, data, err);
    return status;
}

/* Finds the tensor's datasets, and reads the block checksums of the datasets near the box. */
static int prepare_datasets(dcp_checkpoint *ckpt, const reader_tensor *t, const dcp_box *box,
                            reader_datasets *known, dcp_error *err) {
    size_t k, end;
    box_copy copy;
    int status = reader_view_all(ckpt, t, known, err);
    if (status) return status;
    reader_join_near(t, known, box, &k, &end);
    for (; k < end && !status; k++)
        if (format_index_shared(known->datasets[k].row, box, &copy))
            status = reader_view_crcs(ckpt, &known->datasets[k], err);
    return status;
}

static int read_box(dcp_checkpoint *ckpt, reader_block_cache *c, const char *path,
                    const dcp_box *box, void *data, dcp_error *err) {
    const reader_tensor *t = reader_checkpoint_lookup(ckpt, path);
    reader_datasets known;
    int status = check_read(ckpt, t, path, box, data, err);
    if (!status) status = prepare_datasets(ckpt, t, box, &known, err);
    return status ? status : read_known(t, &known, c, box, data, err);
}

enum { MOST_CACHES = 64, TURN_TRIES = 1000 };

/* Acquires the flag that guards the list of caches; it is held only for an instant. Gives up after
 * TURN_TRIES attempts, because in a child of fork it stays set forever if another thread of the
 * parent held it. */
static bool take_turn(dcp_checkpoint *ckpt) {
    for (int i = 0; i < TURN_TRIES; i++) {
        if (!atomic_flag_test_and_set_explicit(&ckpt->lending, memory_order_acquire)) return true;
        sched_yield();
    }
    return false;
}

/* Requires the flag of take_turn. Returns this thread's own cache or, if there are MOST_CACHES
 * caches, the least recently used one, and moves it to the front of the list. Returns NULL if
 * neither is free. */
static reader_thread_cache *find_cache(dcp_checkpoint *ckpt) {
    reader_thread_cache **found = NULL;
    for (reader_thread_cache **at = &ckpt->caches; *at; at = &(*at)->after) {
        const bool own = pthread_equal((*at)->reader, pthread_self());
        if (!(own || ckpt->n_caches >= MOST_CACHES) || atomic_load(&(*at)->in_use)) continue;
        found = at;
        if (own) break;
    }
    if (!found) return NULL;
    reader_thread_cache *lent = *found;
    *found = lent->after;
    lent->after = ckpt->caches;
    return ckpt->caches = lent;
}

static reader_thread_cache *add_cache(dcp_checkpoint *ckpt) {
    reader_thread_cache *lent = ckpt->n_caches < MOST_CACHES ? calloc(1, sizeof *lent) : NULL;
    if (!lent) return NULL;
    ckpt->n_caches++;
    lent->after = ckpt->caches;
    return ckpt->caches = lent;
}

/* Returns NULL if this read has to use a temporary cache. */
static reader_thread_cache *lend_cache(dcp_checkpoint *ckpt) {
    if (!take_turn(ckpt)) return NULL;
    reader_thread_cache *lent = find_cache(ckpt);
    if (!lent) lent = add_cache(ckpt);
    if (lent) {
        lent->reader = pthread_self();
        atomic_store(&lent->in_use, 1);
    }
    atomic_flag_clear_explicit(&ckpt->lending, memory_order_release);
    return lent;
}

void reader_read_free_caches(dcp_checkpoint *ckpt) {
    for (reader_thread_cache *lent = ckpt->caches, *after; lent; lent = after) {
        after = lent->after;
        free(lent->cache.data);
        free(lent);
    }
    ckpt->caches = NULL;
    ckpt->n_caches = 0;
}

int dcp_checkpoint_read(dcp_checkpoint *ckpt, const char *path, const dcp_box *box, void *data,
                        dcp_error *err) {
    if (!ckpt || !path || !box)
        return core_fail(err, DCP_ERR_ARG,
                         "dcp_checkpoint_read: a checkpoint, a path and a box are needed");
    reader_thread_cache *lent = lend_cache(ckpt);
    reader_block_cache own = {0};
    const int status = read_box(ckpt, lent ? &lent->cache : &own, path, box, data, err);
    if (lent) atomic_store(&lent->in_use, 0);
    free(own.data);
    return status;
}

struct dcp_reader {
    dcp_checkpoint *ckpt;
    reader_block_cache cache;
};

int dcp_reader_create(dcp_checkpoint *ckpt, dcp_reader **out, dcp_error *err) {
    if (!ckpt || !out)
        return core_fail(err, DCP_ERR_ARG,
                         "dcp_reader_create: a checkpoint and an output are "
                         "needed");
    dcp_reader *reader = calloc(1, sizeof *reader);
    if (!reader) return core_fail_memory(err, sizeof *reader);
    reader->ckpt = ckpt;
    *out = reader;
    return DCP_OK;
}

void dcp_reader_destroy(dcp_reader *reader) {
    if (!reader) return;
    free(reader->cache.data);
    free(reader);
}

int dcp_reader_read(dcp_reader *reader, const char *path, const dcp_box *box, void *data,
                    dcp_error *err) {
    if (!reader || !path || !box)
        return core_fail(err, DCP_ERR_ARG, "dcp_reader_read: a reader, path and box are needed");
    return read_box(reader->ckpt, &reader->cache, path, box, data, err);
}

/* The public functions that return a tensor's boxes and datasets. */

int dcp_checkpoint_box(const dcp_checkpoint *ckpt, size_t i, size_t k, dcp_box *box) {
    reader_dataset p;
    if (!box || k >= dcp_checkpoint_boxes(ckpt, i) ||
        reader_view_dataset((dcp_checkpoint *)ckpt, &ckpt->tensors[i], k, false, &p, NULL))
        return -1;
    *box = format_index_row_box(p.row);
    return (int)(p.file - ckpt->files);
}

size_t dcp_checkpoint_pieces(const dcp_checkpoint *ckpt, size_t i) {
    return ckpt && i < ckpt->n_tensors && ckpt->tensors[i].bytes ? ckpt->tensors[i].n_datasets : 0;
}

int dcp_checkpoint_piece(const dcp_checkpoint *ckpt, size_t i, size_t k, dcp_piece *out) {
    if (!out || core_sized_check(out, sizeof *out, "DCP_PIECE_INIT", NULL) ||
        k >= dcp_checkpoint_pieces(ckpt, i))
        return DCP_ERR_ARG;
    reader_dataset p;
    int status = reader_view_dataset((dcp_checkpoint *)ckpt, &ckpt->tensors[i], k, true, &p, NULL);
    if (status) return status;
    const dcp_piece piece = {.size = sizeof piece,
                             .box = format_index_row_box(p.row),
                             .file = (int)(p.file - ckpt->files),
                             .bytes = p.row->bytes,
                             .crc = p.row->crc,
                             .block_crcs = p.crcs};
    core_sized_copy_out(out, &piece, sizeof piece);
    return DCP_OK;
}
