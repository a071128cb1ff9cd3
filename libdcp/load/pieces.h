/* A load at work, and the pieces that it moves. */
#pragma once

#include "load/select.h"
#include "move/box_bytes.h"
#include "move/progress.h"
#include "plan/boxes.h"

/* The tensors as they lie in memory until everything is proven (cast.h). */
typedef struct load_casting {
    state_tensor **tensors; /* of each selected tensor */
    state_tensor *shadows;
    state_box *boxes;
    int by_scratch; /* all conversions are from scratch memory (load_cast_agree) */
    int narrows;    /* some tensor is converted from there */
} load_casting;

typedef struct load_job {
    dcp_checkpoint *ckpt;
    dcp_comm *comm;
    dcp_load_options options; /* a copy; the lists in it are the caller's, for the planning alone */
    int given;                /* what was wrong with the arguments on this rank */
    int in_flight;            /* the call was dcp_load_async */
    move_progress progress;
    step_block_cache cache; /* of reads by whole blocks, apart from other readers' */
    load_selection chosen;
    const struct move_engine *engine;
    load_casting cast;
    plan_boxes boxes;
    struct io_queue *queue;  /* of engines by position */
    struct move_file *files; /* of the checkpoint, by address */
    move_device device;      /* that boxes of this rank are on */
    uint64_t *sums;          /* of the blocks of each selected tensor's datasets */
    uint64_t *first_sum;     /* where each tensor's begin; of n + 1 tensors */
    dcp_report report;
} load_job;

/* Not collective: checksums, files and queue. Before the functions below. */
int load_pieces_prepare(load_job *l, dcp_error *err);
void load_pieces_free(load_job *l);

/* Adds the datasets' pieces of `box`, which is b's box or a part of it, to out and returns their
 * number. Where `out` is NULL: how many there can be. */
size_t load_pieces_of(const load_job *l, const plan_box *b, const state_box *box, move_piece *out);

/* 1 where the tensor's boxes are filled by load_pieces_move. */
static inline int load_pieces_fill(const load_job *l, size_t tensor) {
    return l->boxes.exact[tensor] || l->ckpt->scattered;
}

/* Collective. Fills the boxes of pieces (sorted here) and adds to their checksums. */
int load_pieces_move(load_job *l, move_piece *pieces, size_t n, dcp_error *err);
