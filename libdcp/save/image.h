/* One file of a step while it is written, by one rank or by all of them. */
#ifndef DCP_SAVE_IMAGE_H
#define DCP_SAVE_IMAGE_H

#include <limits.h>

#include "dcp/save.h"
#include "io/queue.h"
#include "move/box_bytes.h"
#include "move/progress.h"
#include "save/layout.h"

struct image;

#define MOVED_BYTES (128u << 10) /* a run of at least that is the mover's */

/* For a save whose boxes are in files: what moves their long runs, and has a last look. Not
 * collective. */
typedef struct save_mover {
    /* The fragments of the image will be read soon. */
    void (*announce)(void *ctx, const struct image *im);
    /* Moves the bulk parts of the images, which are open, and adds them to their checksums. */
    int (*move)(void *ctx, struct image *const *images, size_t n, dcp_error *err);
    /* `sums`: raw checksums of the blocks of all tensors, in their order, of all ranks. A failure
     * leaves the step unpublished. */
    int (*prove)(void *ctx, const uint64_t *sums, dcp_error *err);
    void *ctx;
} save_mover;

typedef struct image {
    dcp_comm *comm; /* of the ranks that write it */
    const save_file *layout;
    char path[PATH_MAX];
    const struct move_engine *engine;
    io_file file;
    move_piece *pieces; /* this rank's, and on rank 0 the metadata's; ascending by file_offset */
    size_t n_pieces;
    uint64_t *sums; /* a raw checksum a block, this rank's share; then all ranks' */
    char *meta;     /* rank 0: the JSON text, before padding */
    move_progress *progress;
    const save_mover *mover; /* moves bulk parts, after image_write; NULL: image_write does */
    int is_last;             /* of the images that read the caller's memory */
    dcp_store *store;        /* the step's */
    struct reuse *reuse;     /* NULL: every byte is written */
    int stands;              /* on rank 0: the file is there, a spare one to be written over */
    move_device device;      /* that some of the boxes are on */
} image;

/* Memory for n pieces beside the metadata's, and for the checksums. Not collective. */
int image_prepare(image *im, dcp_comm *comm, const save_file *layout, const char *folder,
                  const char *name, size_t n_pieces, move_progress *progress, dcp_error *err);
/* Adds the piece of dataset `row` that `box` holds. */
move_piece *image_add(image *im, size_t row, const state_box *box, const box_copy *copy);

/* Not collective, after reuse_prepare; on rank 0: takes the store's spare file, where there is one
 * that this image fills as the last one did. */
void image_take_spare(image *im);
/* Not collective, after image_finish; on rank 0: the file may be a spare one some day. */
void image_note_spare(const image *im, uint64_t step);

/* Collective over the image's ranks: creates the file and moves the data. Seconds go to the report.
 */
int image_write(image *im, dcp_report *report, dcp_error *err);
/* Collective: the checksums of what all ranks have moved, on all of them. */
int image_join_sums(image *im, dcp_error *err);

/* Collective: rank 0 writes tables and user block, all make their writes durable. */
int image_finish(image *im, dcp_report *report, dcp_error *err);

void image_free(image *im);

/* Rank 0: tables and user block into the open file. */
int tables_write(const image *im, io_queue *queue, dcp_error *err);

#endif
