/* Unchanged bytes of a file are not written again where the file system lets the new file share
 * them with the last step's. */
#pragma once

#include "save/image.h"

/* Not collective: makes im->reuse for the image, which is number `i` of this rank's files in the
 * step. save_image_free frees it. */
int save_reuse_prepare(save_image *im, dcp_store *store, size_t i, dcp_error *err);

/* Whether there is anything to try to share. Then the file is created empty. The same on all ranks.
 */
int save_reuse_may_share(const save_image *im);

/* Not collective, when rank 0 has opened the file: gives it its length there, looks whether it can
 * share, and reserves its space where it can't. `told` is for the least of all ranks'. */
int save_reuse_begin(save_image *im, uint64_t told[SAVE_REUSE_WORDS], dcp_error *err);

/* Collective over the image's ranks, where save_reuse_may_share and rank 0 can share something.
 * Finds what did not change, shares that, and reserves space for the rest. The pieces then skip
 * what is shared, and the checksums of those that were looked at are taken. Not sharing is no
 * failure. */
int save_reuse_share(save_image *im, const uint64_t told[SAVE_REUSE_WORDS], dcp_error *err);

/* Not collective. After the data: notes the blocks' checksums, which all ranks have. */
void save_reuse_note(save_image *im);
/* Not collective, rank 0 of the image: notes which file it is, when nobody writes it any more. */
void save_reuse_close(save_image *im);
