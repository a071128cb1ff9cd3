/* Writing an image: from creating its file to making it durable. */
#pragma once

#include "save/image.h"

/* Not collective, after save_reuse_prepare; on rank 0: takes the store's recycled file, where there
 * is one that this image fills as the last one did. */
void save_image_take_recycled(save_image *im);
/* Not collective, after save_image_finish; on rank 0: the file may be recycled some day. */
void save_image_note_recycled(const save_image *im, uint64_t step);

/* Collective over the image's ranks: creates the file and moves the data. Seconds go to the report.
 */
int save_image_write(save_image *im, dcp_report *report, dcp_error *err);
/* Collective: the checksums of what all ranks have moved, on all of them. */
int save_image_join_sums(save_image *im, dcp_error *err);

/* Collective: rank 0 writes tables and user block, all make their writes durable. */
int save_image_finish(save_image *im, dcp_report *report, dcp_error *err);
