/* Writing an image: from creating its file to making it durable. */
#pragma once

#include "save/image.h"

/* Not collective, after save_image_finish; on rank 0: the file may be recycled some day. */
void save_image_note_recycled(const save_image *im, uint64_t step);

/* Not collective, after save_reuse_prepare: all that comes before the ranks agree to write. Rank 0
 * creates the file, or takes the store's recycled one, where that one is filled as this image will
 * be. `told` is for the least of all ranks'. */
int save_image_begin(save_image *im, uint64_t told[SAVE_REUSE_WORDS], dcp_error *err);

/* Collective over the image's ranks, when they have agreed: moves the data. Seconds go to the
 * report. */
int save_image_write(save_image *im, const uint64_t told[SAVE_REUSE_WORDS], dcp_report *report,
                     dcp_error *err);
/* Collective: the checksums of what all ranks have moved, on all of them. */
int save_image_join_sums(save_image *im, dcp_error *err);

/* Not collective: rank 0 writes tables and user block, each rank makes its writes durable. */
int save_image_finish(save_image *im, dcp_report *report, dcp_error *err);
