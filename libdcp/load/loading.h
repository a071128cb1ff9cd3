/* A load in progress. */
#pragma once

#include <stdbool.h>

#include "load/select.h"
#include "move/piece.h"
#include "move/transfer.h"
#include "plan/boxes.h"
#include "reader/view.h"

/* The tensors as they lie in memory until everything is proven (load/pieces.h). */
typedef struct load_casting {
    state_tensor **tensors; /* one per selected tensor */
    state_tensor *shadows;
    state_box *boxes;
    bool on_the_way; /* all elements are converted on the way into the boxes (load_plan) */
    bool narrows;    /* the elements of at least one tensor are converted on the way */
} load_casting;

typedef struct load_job {
    dcp_checkpoint *ckpt;
    dcp_comm *comm;
    dcp_load_options options; /* a copy; only planning uses its lists, which are the caller's */
    int argument_status;      /* the status of this rank's arguments */
    bool in_flight;           /* the call was dcp_load_async */
    move_progress progress;
    load_selection chosen;
    const struct move_engine *engine;
    load_casting cast;
    plan_boxes boxes;
    reader_view view;        /* the datasets near this rank's boxes */
    uint64_t first_end;      /* all ranks can make the pieces of the tensors before this one in one
                                batch, if the boxes cover all tensors exactly */
    struct io_queue *queue;  /* for engines that move bytes by position */
    struct move_file *files; /* the checkpoint's files, ordered by address */
    move_device device;      /* the device that has boxes of this rank */
    uint64_t *sums; /* for each selected tensor, the checksums of the blocks of the datasets that
                       this rank knows */
    uint64_t *first_sum; /* [n + 1]: where each tensor's sums begin */
    /* Per block of the tensors that the boxes don't cover exactly: 1 + the rank that proves it; 0:
     * no rank needs any of it. NULL: the boxes cover all tensors exactly. */
    uint64_t *provers;
    /* Like `provers`, for the blocks of the tensors whose home is this rank; NULL: the rows are
     * READER_ROWS_HERE. */
    uint64_t *home_provers;
    dcp_report report;
} load_job;

/* Returns true if the home of the selected tensor is this rank. */
static inline bool load_is_home(const load_job *l, size_t tensor) {
    size_t number = (size_t)(l->chosen.stored[tensor] - l->ckpt->tensors);
    return reader_checkpoint_home(l->ckpt, number) == l->comm->rank;
}

/* Returns true if ranks request the rows of datasets near their boxes from the tensors' homes. */
static inline bool load_uses_homes(const load_job *l) {
    return l->ckpt->rows == READER_ROWS_AT_HOMES && l->comm->size > 1;
}

/* Returns the datasets of the selected tensor that this rank knows. For shards, these are only
 * packed rows until reader_view_open. */
static inline reader_datasets *load_datasets(const load_job *l, size_t tensor) {
    return reader_view_of(&l->view, l->ckpt, l->chosen.stored[tensor]);
}
