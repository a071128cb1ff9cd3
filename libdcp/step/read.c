/* Reading a box by whole blocks, each checked in the buffer it was read into. The block read last
 * is kept, so that reading along a tensor reads each block once. Each reader has its own buffer,
 * and so has each thread that reads without one; the rest is shared, and reads change nothing of it
 * except that they open files. */
#include "step/read.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "core/box.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "dcp/inspect.h"
#include "step/joined.h"
#include "step/view.h"

static int compare_block(const step_dataset *p, uint64_t number, uint64_t crc, dcp_error *err) {
    if (crc == p->crcs[number]) return DCP_OK;
    core_fail_at(err, DCP_ERR_CORRUPT, p->file->path,
                 "tensor %s, block %llu: what was read differs from what was saved",
                 p->row->tensor.path, (unsigned long long)number);
    core_fail_offset(DCP_ERR_CORRUPT, p->row->offset + number * BLOCK_BYTES, err);
    return core_fail_tensor(DCP_ERR_CORRUPT, p->row->tensor.path, err);
}

int step_read_compare_sum(const step_dataset *p, uint64_t block, uint64_t sum, dcp_error *err) {
    uint64_t bytes = step_index_block_bytes(p->row->bytes, block);
    return compare_block(p, block, core_crc64_finish(sum, bytes), err);
}

int step_read_compare_sums(const step_dataset *p, const uint64_t *sums, dcp_error *err) {
    int status = DCP_OK;
    for (uint64_t b = 0; b < step_index_blocks(p->row->bytes) && !status; b++)
        status = step_read_compare_sum(p, b, sums[b], err);
    return status;
}

static int make_cache(step_block_cache *c, dcp_error *err) {
    c->row = NULL;
    if (!c->data && posix_memalign((void **)&c->data, PAGE_BYTES, BLOCK_BYTES))
        return core_fail_memory(err, BLOCK_BYTES);
    return DCP_OK;
}

int step_read_block(step_block_cache *c, const step_dataset *p, uint64_t number, dcp_error *err) {
    if (c->row == p->row && c->number == number) return DCP_OK;
    uint64_t bytes = step_index_block_bytes(p->row->bytes, number);
    int status = make_cache(c, err);
    if (!status)
        status =
            step_file_read(p->file, c->data, bytes, p->row->offset + number * BLOCK_BYTES, err);
    if (!status) status = compare_block(p, number, core_crc64(c->data, bytes), err);
    if (status) return status;
    c->row = p->row;
    c->number = number;
    return DCP_OK;
}

int step_read_bytes(step_block_cache *c, const step_dataset *p, uint64_t offset, uint64_t bytes,
                    unsigned char *out, dcp_error *err) {
    while (bytes) {
        uint64_t number = offset / BLOCK_BYTES, at = offset % BLOCK_BYTES;
        int status = step_read_block(c, p, number, err);
        if (status) return status;
        uint64_t part = BLOCK_BYTES - at < bytes ? BLOCK_BYTES - at : bytes;
        memcpy(out, c->data + at, part);
        out += part;
        offset += part;
        bytes -= part;
    }
    return DCP_OK;
}

static int read_dataset(step_block_cache *c, const step_dataset *p, const dcp_box *want,
                        unsigned char *data, dcp_error *err) {
    box_copy copy;
    if (!step_index_shared(p->row, want, &copy)) return DCP_OK;
    int status = DCP_OK;
    for (uint64_t i = 0, a, b; i < copy.runs && !status; i++) {
        core_box_copy_run(&copy, i, &a, &b);
        status = step_read_bytes(c, p, a, copy.run_bytes, data + b, err);
    }
    return status;
}

/* Whether the box can be read at all. */
static int check_read(const dcp_checkpoint *ckpt, const step_tensor *t, const char *path,
                      const dcp_box *box, const void *data, dcp_error *err) {
    if (!t)
        return core_fail_tensor(core_fail_at(err, DCP_ERR_NOT_FOUND, ckpt->path,
                                             "tensor %s is not in the checkpoint", path),
                                path, err);
    for (uint32_t d = 0; d < core_box_dims(t->tensor.ndim); d++)
        if (box->start[d] > t->tensor.shape[d] ||
            box->count[d] > t->tensor.shape[d] - box->start[d])
            return core_fail_tensor(core_fail(err, DCP_ERR_ARG,
                                              "tensor %s: the box lies outside on dimension %u",
                                              path, d),
                                    path, err);
    if (!data && t->bytes && dcp_box_elems(box, t->tensor.ndim))
        return core_fail_tensor(
            core_fail(err, DCP_ERR_ARG, "tensor %s: a box with elements needs memory", path), path,
            err);
    return DCP_OK;
}

/* Out of the datasets that are known near the box. */
static int read_known(const step_tensor *t, const step_known *known, step_block_cache *c,
                      const dcp_box *box, void *data, dcp_error *err) {
    int status = DCP_OK;
    size_t k, end;
    step_join_near(t, known, box, &k, &end);
    for (; k < end && !status; k++) status = read_dataset(c, &known->datasets[k], box, data, err);
    return status;
}

/* The datasets near the box get to know their blocks' checksums. */
static int prepare_datasets(dcp_checkpoint *ckpt, const step_tensor *t, const dcp_box *box,
                            step_known *known, dcp_error *err) {
    size_t k, end;
    box_copy copy;
    int status = step_view_all(ckpt, t, known, err);
    if (status) return status;
    step_join_near(t, known, box, &k, &end);
    for (; k < end && !status; k++)
        if (step_index_shared(known->datasets[k].row, box, &copy))
            status = step_view_crcs(ckpt, &known->datasets[k], err);
    return status;
}

static int read_box(dcp_checkpoint *ckpt, step_block_cache *c, const char *path, const dcp_box *box,
                    void *data, dcp_error *err) {
    const step_tensor *t = step_checkpoint_lookup(ckpt, path);
    step_known known;
    int status = check_read(ckpt, t, path, box, data, err);
    if (!status) status = prepare_datasets(ckpt, t, box, &known, err);
    return status ? status : read_known(t, &known, c, box, data, err);
}

enum { MOST_CACHES = 64, TURN_TRIES = 1000 };

/* It is held for an instant, but in a child of fork, whose parent's thread had it, for ever. */
static int take_turn(dcp_checkpoint *ckpt) {
    for (int i = 0; i < TURN_TRIES; i++) {
        if (!atomic_flag_test_and_set_explicit(&ckpt->lending, memory_order_acquire)) return 1;
        sched_yield();
    }
    return 0;
}

/* In this thread's turn: its own cache; or, of as many as there may be, the one that was used
 * longest ago. It goes to the beginning of the list. NULL: none. */
static step_lent_cache *find_cache(dcp_checkpoint *ckpt) {
    step_lent_cache **found = NULL;
    for (step_lent_cache **at = &ckpt->caches; *at; at = &(*at)->after) {
        const int own = pthread_equal((*at)->reader, pthread_self());
        if (!(own || ckpt->n_caches >= MOST_CACHES) || atomic_load(&(*at)->in_use)) continue;
        found = at;
        if (own) break;
    }
    if (!found) return NULL;
    step_lent_cache *lent = *found;
    *found = lent->after;
    lent->after = ckpt->caches;
    return ckpt->caches = lent;
}

static step_lent_cache *add_cache(dcp_checkpoint *ckpt) {
    step_lent_cache *lent = ckpt->n_caches < MOST_CACHES ? calloc(1, sizeof *lent) : NULL;
    if (!lent) return NULL;
    ckpt->n_caches++;
    lent->after = ckpt->caches;
    return ckpt->caches = lent;
}

/* NULL: this read has one for itself. */
static step_lent_cache *lend_cache(dcp_checkpoint *ckpt) {
    if (!take_turn(ckpt)) return NULL;
    step_lent_cache *lent = find_cache(ckpt);
    if (!lent) lent = add_cache(ckpt);
    if (lent) {
        lent->reader = pthread_self();
        atomic_store(&lent->in_use, 1);
    }
    atomic_flag_clear_explicit(&ckpt->lending, memory_order_release);
    return lent;
}

void step_read_forget(dcp_checkpoint *ckpt) {
    for (step_lent_cache *lent = ckpt->caches, *after; lent; lent = after) {
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
    step_lent_cache *lent = lend_cache(ckpt);
    step_block_cache own = {0};
    const int status = read_box(ckpt, lent ? &lent->cache : &own, path, box, data, err);
    if (lent) atomic_store(&lent->in_use, 0);
    free(own.data);
    return status;
}

struct dcp_reader {
    dcp_checkpoint *ckpt;
    step_block_cache cache;
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
