/* Unchanged bytes of a file are not written again where the file system lets the new file share
 * them with the last step's. */
#pragma once

#include "save/image.h"

/* Not collective: makes im->reuse for the image, which is number `i` of this rank's files in the
 * step. save_image_free frees it. */
int save_reuse_prepare(save_image *im, dcp_store *store, size_t i, dcp_error *err);

/* Whether there is anything to try to share. Then save_image_write creates the file empty, and
 * calls save_reuse_share once all ranks have opened it. The same on all ranks. */
int save_reuse_may_share(const save_image *im);

/* Collective over the image's ranks. Gives the file its length, finds what did not change, shares
 * that, and reserves space for the rest. The pieces then skip what is shared, and the checksums of
 * those that were looked at are taken. Not sharing is no failure. */
int save_reuse_share(save_image *im, dcp_error *err);

/* Not collective. After the data: notes the blocks' checksums, which all ranks have. */
void save_reuse_note(save_image *im);
/* Not collective, rank 0 of the image: notes which file it is, when nobody writes it any more. */
void save_reuse_close(save_image *im);
