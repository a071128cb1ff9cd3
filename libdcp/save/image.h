/* One file of a step while it is written, and which of its bytes need not be written again. */
#pragma once

#include <limits.h>

#include "comm/vote.h"
#include "io/queue.h"
#include "move/piece.h"
#include "move/transfer.h"
#include "save/plan.h"

/* One file of a step while it is written, by one rank or by all of them. */

struct save_image;
struct save_file_record;
struct save_replicas;

#define SAVE_APART_BYTES (128u << 10) /* a run of at least that is the save_mover's */

/* For a save whose boxes lie in files: it reads ahead, moves the long runs itself, and proves the
 * result. Not collective. */
typedef struct save_mover {
    /* Says that the fragments of the image will be read soon. */
    void (*announce)(void *ctx, const struct save_image *im);
    /* Moves the bulk parts of the images, which are open, and adds them to their checksums. */
    int (*move)(void *ctx, struct save_image *const *images, size_t n, dcp_error *err);
    /* `sums`: raw checksums of the blocks of all tensors, in their order, of all ranks. A failure
     * leaves the step unpublished. */
    int (*prove)(void *ctx, const uint64_t *sums, dcp_error *err);
    void *ctx;
} save_mover;

/* What the file shares with that of the last step: see reuse.h. */
typedef struct save_reuse {
    const struct save_file_record *last; /* NULL: there is nothing to share with */
    struct save_file_record *now;
    char path[PATH_MAX];   /* of the last step's file */
    move_span_list shared; /* what the new file has from it */
    uint64_t *sums;        /* memory to look for that */
    int from;              /* on rank 0: the last step's file, open; -1: it can't be shared with */
    uint64_t bytes;        /* in all */
} save_reuse;

/* How far the ranks of an image can share extents with the last step's file. */
typedef struct save_sharing {
    uint64_t how; /* see save/image.c */
    bool refused; /* the file system refused */
} save_sharing;

typedef struct save_image {
    dcp_comm *comm; /* of the ranks that write it */
    const save_file *layout;
    char path[PATH_MAX];
    const struct move_engine *engine;
    io_file file;
    move_piece *pieces; /* this rank's, and on rank 0 the metadata's; ascending by file_offset */
    size_t n_pieces;
    /* A raw checksum a block, this rank's share; then all ranks'. Behind them the word of the
     * replicas (replica_sums.h). */
    uint64_t *sums;
    char *meta; /* rank 0: the JSON text, before padding */
    move_progress *progress;
    const save_mover *mover; /* moves bulk parts after save_image_write; NULL: that moves them */
    int is_last;             /* of the images that read the caller's memory */
    dcp_store *store;        /* the step's */
    save_reuse *reuse;       /* NULL: every byte is written */
    int is_recycled;         /* on rank 0: the file is there, to be written over */
    move_device device;      /* that some of the boxes are on */
    /* Windows of earlier saves, and whether they serve (move/transfer.h). NULL: none are kept. */
    struct move_kept *moves;
    int uses_moves;
    const struct save_replicas *replicas; /* to be read with the pieces; NULL: none */
} save_image;

/* Memory for n pieces beside the metadata's, and for the checksums. Not collective. */
int save_image_prepare(save_image *im, dcp_comm *comm, const save_file *layout, const char *folder,
                       const char *name, size_t n_pieces, move_progress *progress, dcp_error *err);
/* Adds the piece of dataset `row` that `box` holds. */
move_piece *save_image_add(save_image *im, size_t row, const state_box *box, const box_copy *copy);

void save_image_free(save_image *im);

/* Unchanged bytes of a file are not written again where the file system lets the new file share
 * them with the last step's. */

/* Not collective: makes im->reuse for the image, which is number `i` of this rank's files in the
 * step. save_image_free frees it. */
int save_reuse_prepare(save_image *im, dcp_store *store, size_t i, dcp_error *err);

/* Whether there is anything to try to share. Then the file is created empty. The same on all ranks.
 */
int save_reuse_may_share(const save_image *im);

/* Not collective, when rank 0 has opened the file: gives it its length there, looks whether it can
 * share, and reserves its space where it can't. */
int save_reuse_begin(save_image *im, save_sharing *sharing, dcp_error *err);
/* All ranks learn each other's. */
void save_reuse_vote(comm_vote *v, save_sharing *sharing);

/* Collective over the image's ranks, where save_reuse_may_share and rank 0 can share something.
 * Finds what did not change, shares that, and reserves space for the rest. The pieces then skip
 * what is shared, and the checksums of those that were looked at are taken. Not sharing is no
 * failure. */
int save_reuse_share(save_image *im, const save_sharing *sharing, dcp_error *err);

/* Not collective. After the data: notes the blocks' checksums, which all ranks have. */
void save_reuse_note(save_image *im);
/* Not collective, rank 0 of the image: notes which file it is, when nobody writes it any more. */
void save_reuse_close(save_image *im);
