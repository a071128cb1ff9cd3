/* A rewrite from inside: a save whose bytes come from a checkpoint's files.
 *
 * Fragments (move/piece.h) are read one by one through the page cache, where the kernel reads
 * ahead. Whole pages of long runs, nearly all bytes, go in batches past it: some batches are being
 * read while others are written. */
#ifndef DCP_REWRITE_REWRITE_H
#define DCP_REWRITE_REWRITE_H

#include "core/fail.h"
#include "dcp/rewrite.h"
#include "save/image.h"
#include "step/checkpoint.h"

/* A box to be written; the ctx of its state_box. */
typedef struct rewrite_box {
    struct rewrite *owner;
    const step_tensor *tensor;
    dcp_box box;
} rewrite_box;

typedef struct rewrite {
    dcp_checkpoint *from;
    dcp_state *state;
    rewrite_box *boxes;
    size_t n_boxes;
    uint64_t memory_bytes;
    unsigned char *scratch; /* of rewrite_fetch */
    move_progress *progress;
    int (*stop)(void); /* the caller's; NULL: never */
} rewrite;

/* Not DCP_OK where the caller wants to stop. */
static inline int rewrite_stopped(const rewrite *w, dcp_error *err) {
    if (!w->stop || !w->stop()) return DCP_OK;
    return core_fail(err, DCP_ERR_IO, "stopped by a signal: nothing is published");
}

/* A run of bytes of a box that lies in one dataset. */
typedef struct rewrite_run {
    const step_dataset *piece;
    uint64_t dataset_offset;
    uint64_t at; /* from the first byte that was asked for */
    uint64_t bytes;
} rewrite_run;

/* Not DCP_OK ends the walk. */
typedef int (*rewrite_run_fn)(void *ctx, const rewrite_run *run);

/* Where bytes [offset, offset + bytes) of the box, dense, lie in the old files. Runs of one dataset
 * ascend there. */
int rewrite_runs(const rewrite_box *box, uint64_t offset, uint64_t bytes, rewrite_run_fn fn,
                 void *ctx);

/* dcp_source_fn of a rewrite_box: reads them through the page cache. */
int rewrite_fetch(void *box, uint64_t offset, uint64_t bytes, void *out, dcp_error *err);

/* save_mover: has the kernel read ahead what the image's fragments need. */
void rewrite_announce(void *rewrite, const image *im);

/* save_mover: moves the images' bulk parts. */
int rewrite_move(void *rewrite, image *const *images, size_t n, dcp_error *err);

/* save_mover: the blocks' checksums of all tensors of the new files, `sums`, against the old ones'.
 * Not collective; every rank checks them all. */
int rewrite_prove(void *rewrite, const uint64_t *sums, dcp_error *err);

#endif
