/* One file of a step while it is written, by one rank or by all of them. */
#pragma once

#include <limits.h>

#include "io/queue.h"
#include "move/box_bytes.h"
#include "move/progress.h"
#include "save/file_plan.h"

struct save_image;
struct save_file_record;
struct save_replicas;

#define SAVE_REUSE_WORDS 2            /* that ranks tell each other to share (reuse.h) */
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
