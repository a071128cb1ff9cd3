/* Finding the runs of bytes that a rewrite copies, and moving the long runs. */
#pragma once

#include "core/fail.h"
#include "reader/checkpoint.h"
#include "save/image.h"

/* Finding where the bytes of a rewrite come from: the datasets in the old files that have the
 * elements of a new box. */

struct move_progress;

/* A box to be written. It is the ctx of its state_box. */
typedef struct rewrite_box {
    struct rewrite *owner;
    const reader_tensor *tensor;
    dcp_box box;
} rewrite_box;

typedef struct rewrite {
    dcp_checkpoint *from;
    reader_view view; /* the old files' datasets near the boxes */
    dcp_state *state;
    rewrite_box *boxes;
    size_t n_boxes;
    uint64_t memory_bytes;
    unsigned char *scratch; /* for rewrite_fetch */
    struct move_progress *progress;
} rewrite;

/* A run of bytes of a box that lies in one dataset. */
typedef struct rewrite_run {
    const reader_dataset *piece;
    uint64_t dataset_offset;
    uint64_t at; /* offset from the first requested byte */
    uint64_t bytes;
} rewrite_run;

/* A result other than DCP_OK ends rewrite_runs, which returns it. */
typedef int (*rewrite_run_fn)(void *ctx, const rewrite_run *run);

/* Calls fn for each run in the old files that holds a part of bytes [offset, offset + bytes) of the
 * dense box. The runs of one dataset come in ascending order of their offsets. */
int rewrite_runs(const rewrite_box *box, uint64_t offset, uint64_t bytes, rewrite_run_fn fn,
                 void *ctx);

/* The dcp_source_fn of a rewrite_box. Reads through the page cache. */
int rewrite_fetch(void *box, uint64_t offset, uint64_t bytes, void *out, dcp_error *err);

/* Moving the long runs of a rewrite's new files. */

/* The member `move` of the rewrite's save_mover: moves the images' bulk parts. */
int rewrite_move(void *rewrite, save_image *const *images, size_t n, dcp_error *err);
