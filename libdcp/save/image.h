/* An image: one file of a step while it is written. Its unchanged bytes need not be written
 * again. */
#pragma once

#include <limits.h>
#include <stdbool.h>

#include "comm/vote.h"
#include "io/queue.h"
#include "move/piece.h"
#include "move/transfer.h"
#include "save/plan.h"

struct save_image;
struct save_file_record;
struct save_replicas;

#define SAVE_APART_BYTES (128u << 10) /* the save_mover moves runs of at least this size */

/* Functions of a save whose boxes lie in files: they announce reads, move the long runs, and check
 * the result. `announce` and `move` are not collective. */
typedef struct save_mover {
    /* Announces that the fragments of the image will be read soon. */
    void (*announce)(void *ctx, const struct save_image *im);
    /* Moves the bulk parts of the images, whose files are open, and adds these parts to the images'
     * checksums. */
    int (*move)(void *ctx, struct save_image *const *images, size_t n, dcp_error *err);
    /* Checks the written tensors. `sums` are the raw checksums of the blocks of all tensors, in
     * order, joined over all ranks. If this fails, the step is not published. */
    int (*prove)(void *ctx, const uint64_t *sums, dcp_error *err);
    void *ctx;
} save_mover;

/* The extents that an image shares with the last step's file. */
typedef struct save_reuse {
    const struct save_file_record *last; /* NULL: there is nothing to share with */
    struct save_file_record *now;
    char path[PATH_MAX];   /* the last step's file */
    move_span_list shared; /* ranges that the new file shares with it */
    uint64_t *sums;        /* memory for finding unchanged blocks */
    int from;              /* on rank 0: the last step's file, open; -1: nothing can be shared */
    uint64_t bytes;        /* the total number of bytes that are shared */
} save_reuse;

/* Whether the ranks of an image can share extents with the last step's file. The ranks vote on
 * it. */
typedef struct save_sharing {
    uint64_t how; /* see save/image.c */
    bool refused; /* the file system refused to share */
} save_sharing;

typedef struct save_image {
    dcp_comm *comm; /* the ranks that write the image */
    const save_file *layout;
    char path[PATH_MAX];
    const struct move_engine *engine;
    io_file file;
    move_piece *pieces; /* this rank's and, on rank 0, the metadata's; sorted by file_offset */
    size_t n_pieces;
    /* A raw checksum per block, followed by the word of save_replicas_word. First they cover this
     * rank's bytes; then they are joined over all ranks. */
    uint64_t *sums;
    char *meta; /* rank 0: the JSON text, before padding */
    move_progress *progress;
    /* Moves bulk parts after save_image_write. NULL: save_image_write moves them, too. */
    const save_mover *mover;
    bool is_last;       /* no later image reads the caller's memory */
    dcp_store *store;   /* the store of the step */
    save_reuse *reuse;  /* NULL: every byte is written */
    bool is_recycled;   /* on rank 0: the file is a recycled file, which is overwritten */
    move_device device; /* the device that has some of the boxes */
    /* `moves`: the windows that are kept from earlier saves (move/transfer.h); NULL: none.
     * `uses_moves`: they can be used. */
    struct move_window_cache *moves;
    bool uses_moves;
    const struct save_replicas *replicas; /* read together with the pieces; NULL: none */
} save_image;

/* Allocates memory for the metadata's pieces and n others, and for the checksums. Not
 * collective. */
int save_image_prepare(save_image *im, dcp_comm *comm, const save_file *layout, const char *folder,
                       const char *name, size_t n_pieces, move_progress *progress, dcp_error *err);
/* Adds a piece: the bytes of `box` in the dataset of row number `row`. `copy` describes where they
 * lie. */
move_piece *save_image_add(save_image *im, size_t row, const state_box *box, const box_copy *copy);

void save_image_free(save_image *im);

/* Unchanged bytes of a file are not written again if the file system lets the new file share them
 * with the last step's file. */

/* Makes im->reuse for the image, which is file number `i` of this rank's files in the step.
 * save_image_free frees it. Not collective. */
int save_reuse_prepare(save_image *im, dcp_store *store, size_t i, dcp_error *err);

/* Returns true if it is worth trying to share extents; then the file is created empty. Returns the
 * same result on all ranks. */
bool save_reuse_may_share(const save_image *im);

/* Called after rank 0 has opened the file; not collective. Rank 0 sets the file's length, finds out
 * whether it can share extents, and reserves the whole space if it can't. */
int save_reuse_begin(save_image *im, save_sharing *sharing, dcp_error *err);
/* Adds *sharing to a vote, which sets it to the outcome for all ranks. */
void save_reuse_vote(comm_vote *v, save_sharing *sharing);

/* Collective over the image's ranks; called if save_reuse_may_share returns true. `sharing` is the
 * outcome of the vote. Finds the unchanged extents, shares them, and reserves space for the rest.
 * The pieces then skip the shared ranges. The checksums of the pieces that were compared are then
 * complete, and are not computed again. It is not an error if nothing is shared. */
int save_reuse_share(save_image *im, const save_sharing *sharing, dcp_error *err);

/* Records the blocks' checksums, which all ranks have. Not collective; called after the data is
 * written. */
void save_reuse_note(save_image *im);
/* Records the identity of the file on the image's rank 0. Not collective; called after the last
 * write to the file. */
void save_reuse_close(save_image *im);
