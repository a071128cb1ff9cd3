/* A load at work: what load.c and cast.c share. */
#ifndef DCP_LOAD_LOAD_H
#define DCP_LOAD_LOAD_H

#include "load/select.h"
#include "load/transfer.h"
#include "plan/boxes.h"

/* The tensors as they lie in memory until everything is proven (cast.h). */
typedef struct casting {
    state_tensor **tensors; /* of each selected tensor */
    state_tensor *shadows;
    state_box *boxes;
    int by_scratch; /* some rank's boxes are on a device: all conversions are from scratch memory */
    int narrows;    /* some tensor is converted from there */
    int widens;     /* some tensor is converted in place */
} casting;

typedef struct load {
    dcp_checkpoint *ckpt;
    dcp_comm *comm;
    const dcp_load_options *options; /* not NULL */
    selection chosen;
    dcp_engine engine; /* never DCP_ENGINE_AUTO */
    casting cast;
    plan_boxes boxes;
    io_queue *queue;
    struct staging *staging; /* NULL: none of this rank's boxes is on a device */
    piece *pieces;
    size_t n_pieces;
    uint64_t *sums;      /* of the blocks of each selected tensor's datasets */
    uint64_t *first_sum; /* where each tensor's begin; of n + 1 tensors */
    dcp_report report;
} load;

/* Adds the datasets' pieces of `box`, which is b's box or a part of it, to out and returns their
 * number. Where `out` is NULL: how many there can be. */
size_t load_pieces(const load *l, const plan_box *b, const state_box *box, piece *out);

/* 1 where the tensor's boxes are filled by load_move. */
static inline int load_moves(const load *l, size_t tensor) {
    return l->boxes.exact[tensor] || l->ckpt->scattered;
}

/* Collective. Fills the boxes of pieces (sorted here) and adds to their checksums. */
int load_move(load *l, piece *pieces, size_t n, dcp_error *err);

/* Collective, for files that some ranks don't see. Of the tensors that the boxes don't cover
 * exactly, each file's reader checks the blocks that any rank took something from. */
int load_check_blocks(load *l, dcp_error *err);

#endif
