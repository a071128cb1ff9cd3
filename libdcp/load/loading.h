/* A load at work. */
#pragma once

#include "load/select.h"
#include "move/piece.h"
#include "move/transfer.h"
#include "plan/boxes.h"
#include "reader/view.h"

/* The tensors as they lie in memory until everything is proven (cast.h). */
typedef struct load_casting {
    state_tensor **tensors; /* of each selected tensor */
    state_tensor *shadows;
    state_box *boxes;
    int on_the_way; /* all conversions are on the way into the boxes (load_plan) */
    int narrows;    /* some tensor is converted there */
} load_casting;

typedef struct load_job {
    dcp_checkpoint *ckpt;
    dcp_comm *comm;
    dcp_load_options options; /* a copy; the lists in it are the caller's, for the planning alone */
    int given;                /* what was wrong with the arguments on this rank */
    int in_flight;            /* the call was dcp_load_async */
    move_progress progress;
    load_selection chosen;
    const struct move_engine *engine;
    load_casting cast;
    plan_boxes boxes;
    reader_view view;   /* the datasets near this rank's boxes */
    uint64_t first_end; /* all ranks can make the pieces of the tensors before this one at once, if
                           the boxes cover all tensors exactly */
    struct io_queue *queue;  /* of engines by position */
    struct move_file *files; /* of the checkpoint, by address */
    move_device device;      /* that boxes of this rank are on */
    uint64_t *sums;      /* of the blocks of each selected tensor's datasets that are known here */
    uint64_t *first_sum; /* where each tensor's begin; of n + 1 tensors */
    /* A block: 1 + the rank that proves it, of tensors that the boxes don't cover exactly; 0: no
     * rank wants any of it. NULL: the boxes cover all tensors exactly. */
    uint64_t *provers;
    /* The same of all blocks of the tensors that are at home here; NULL: all rows are here. */
    uint64_t *home_provers;
    dcp_report report;
} load_job;

/* Whether selected tensor i is at home on this rank. */
static inline int load_is_home(const load_job *l, size_t tensor) {
    size_t number = (size_t)(l->chosen.stored[tensor] - l->ckpt->tensors);
    return reader_checkpoint_home(l->ckpt, number) == l->comm->rank;
}

/* Whether ranks ask the tensors' homes for the rows of the datasets near their boxes. */
static inline bool load_asks_homes(const load_job *l) {
    return l->ckpt->rows == READER_ROWS_AT_HOMES && l->comm->size > 1;
}

/* The datasets of selected tensor i that this rank knows; those of shards by their packed rows,
 * unless they are open. */
static inline reader_known *load_known(const load_job *l, size_t tensor) {
    return reader_view_of(&l->view, l->ckpt, l->chosen.stored[tensor]);
}
