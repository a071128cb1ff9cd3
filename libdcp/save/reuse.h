/* Unchanged bytes of a file are not written again where the file system lets the new file share
 * them with the last step's. */
#ifndef DCP_SAVE_REUSE_H
#define DCP_SAVE_REUSE_H

#include "save/history.h"
#include "save/image.h"

typedef struct reuse {
    const save_file_record *last; /* NULL: there is nothing to share with */
    save_file_record *now;
    char path[PATH_MAX];   /* of the last step's file */
    move_span_list shared; /* what the new file has from it */
    uint64_t bytes;        /* in all */
} reuse;

/* Not collective: prepares it for the image, which is number `i` of this rank's files in the step.
 * Frees itself with the image. */
int reuse_prepare(image *im, dcp_store *store, size_t i, dcp_error *err);

/* Whether image_write has something to try: then it creates the file empty, and calls reuse_share
 * when all have opened it. The same on all ranks. */
int reuse_may_share(const image *im);

/* Collective over the image's ranks. Gives the file its length, finds what did not change, shares
 * that, and reserves space for the rest. The pieces then skip what is shared, and the checksums of
 * those that were looked at are taken. Not sharing is no failure. */
int reuse_share(image *im, dcp_error *err);

/* Not collective. After the data: notes the blocks' checksums, which all ranks have. */
void reuse_note(image *im);
/* Not collective, rank 0 of the image: notes which file it is, when nobody writes it any more. */
void reuse_close(image *im);
void reuse_free(reuse *u);

#endif
