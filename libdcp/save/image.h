/* One file of a step while it is written, and which of its bytes need not be written again. */
#pragma once

#include <limits.h>

#include "comm/vote.h"
#include "io/queue.h"
#include "move/piece.h"
#include "move/transfer.h"
#include "save/plan.h"

struct save_image;
struct save_file_record;
struct save_replicas;

#define SAVE_APART_BYTES (128u << 10) /* the save_mover moves runs of at least this size */

/* For a save whose boxes lie in files: reads ahead, moves the long runs itself, and proves the
 * result. Not collective. */
typedef struct save_mover {
    /* Announces that the fragments of the image will be read soon. */
    void (*announce)(void *ctx, const struct save_image *im);
    /* Moves the bulk parts of the images, which are open, and adds them to their checksums. */
    int (*move)(void *ctx, struct save_image *const *images, size_t n, dcp_error *err);
    /* Checks what was written. `sums`: raw checksums of the blocks of all tensors, in order, over
     * all ranks. If it fails, the step is not published. */
    int (*prove)(void *ctx, const uint64_t *sums, dcp_error *err);
    void *ctx;
} save_mover;

/* The extents that the file shares with that of the last step. */
typedef struct save_reuse {
    const struct save_file_record *last; /* NULL: there is nothing to share with */
    struct save_file_record *now;
    char path[PATH_MAX];   /* the last step's file */
    move_span_list shared; /* what the new file shares with it */
    uint64_t *sums;        /* memory for finding unchanged blocks */
    int from;              /* on rank 0: the last step's file, open; -1: it can't be shared with */
    uint64_t bytes;        /* shared in all */
} save_reuse;

/* How far the ranks of an image can share extents with the last step's file. */
typedef struct save_sharing {
    uint64_t how; /* see save/image.c */
    bool refused; /* the file system refused */
} save_sharing;

typedef struct save_image {
    dcp_comm *comm; /* the ranks that write it */
    const save_file *layout;
    char path[PATH_MAX];
    const struct move_engine *engine;
    io_file file;
    move_piece *pieces; /* this rank's, and on rank 0 the metadata's; ascending by file_offset */
    size_t n_pieces;
    /* A raw checksum per block, first this rank's share and then that of all ranks. The word of the
     * replicas (save_replicas_word) follows. */
    uint64_t *sums;
    char *meta; /* rank 0: the JSON text, before padding */
    move_progress *progress;
    const save_mover *mover; /* moves bulk parts after save_image_write; NULL: that moves them */
    int is_last;             /* no later image reads the caller's memory */
    dcp_store *store;        /* the step's */
    save_reuse *reuse;       /* NULL: every byte is written */
    int is_recycled;         /* on rank 0: the file exists and is overwritten */
    move_device device;      /* that has some of the boxes */
    /* Windows of earlier saves, and whether they serve (move/transfer.h). NULL: none are kept. */
    struct move_kept *moves;
    int uses_moves;
    const struct save_replicas *replicas; /* are read with the pieces; NULL: none */
} save_image;

/* Allocates memory for n pieces besides the metadata's, and for the checksums. Not collective. */
int save_image_prepare(save_image *im, dcp_comm *comm, const save_file *layout, const char *folder,
                       const char *name, size_t n_pieces, move_progress *progress, dcp_error *err);
/* Adds the piece of the dataset of row number `row` that `box` holds. */
move_piece *save_image_add(save_image *im, size_t row, const state_box *box, const box_copy *copy);

void save_image_free(save_image *im);

/* Unchanged bytes of a file are not written again if the file system lets the new file share them
 * with the last step's. */

/* Not collective: makes im->reuse for the image, which is number `i` of this rank's files in the
 * step. save_image_free frees it. */
int save_reuse_prepare(save_image *im, dcp_store *store, size_t i, dcp_error *err);

/* Returns true if the file may share something; it is created empty then. The same on all ranks. */
int save_reuse_may_share(const save_image *im);

/* Not collective, after rank 0 has opened the file: rank 0 sets its length, finds out whether it
 * can share, and reserves its space if it can't. */
int save_reuse_begin(save_image *im, save_sharing *sharing, dcp_error *err);
/* Adds to a vote how far all ranks can share. */
void save_reuse_vote(comm_vote *v, save_sharing *sharing);

/* Collective over the image's ranks, if save_reuse_may_share; `sharing` is the outcome of the vote.
 * Finds what did not change, shares that, and reserves space for the rest. The pieces then skip
 * what is shared, and the checksums of those that were compared are taken. It is no failure if
 * nothing is shared. */
int save_reuse_share(save_image *im, const save_sharing *sharing, dcp_error *err);

/* Not collective, after the data: notes the blocks' checksums, which all ranks have. */
void save_reuse_note(save_image *im);
/* Not collective, on rank 0 of the image, once nobody writes the file any more: notes its identity.
 */
void save_reuse_close(save_image *im);
