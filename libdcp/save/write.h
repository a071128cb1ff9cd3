/* Writing the files of a step, in both layouts. */
#pragma once

#include "save/image.h"
#include "save/plan.h"
#include "save/request.h"

/* Writing an image: from creating its file to making it durable. */

/* Not collective, after save_image_finish; on rank 0: the file may be recycled some day. */
void save_image_note_recycled(const save_image *im, uint64_t step);

/* Not collective, after save_reuse_prepare: all that comes before the ranks agree to write. Rank 0
 * creates the file, or takes the store's recycled one, where that one is filled as this image will
 * be. */
int save_image_begin(save_image *im, save_sharing *sharing, dcp_error *err);

/* Collective over the image's ranks, when they have agreed: moves the data. Seconds go to the
 * report. */
int save_image_write(save_image *im, const save_sharing *sharing, dcp_report *report,
                     dcp_error *err);
/* Collective: the checksums of what all ranks have moved, on all of them. */
int save_image_join_sums(save_image *im, dcp_error *err);

/* Not collective: rank 0 writes tables and user block, each rank makes its writes durable. */
int save_image_finish(save_image *im, dcp_report *report, dcp_error *err);

/* Layout sharded: files of their own, each written by one rank. */

typedef struct save_sharded save_sharded;

/* Not collective: memory, before the ranks agree to write. *shares_none: this rank's files share no
 * extents with the last step. To be freed in either case. */
int save_sharded_make(dcp_store *store, const save_request *request, const save_plan *plan,
                      save_sharded **out, bool *shares_none, dcp_error *err);
/* NULL is ignored. */
void save_sharded_free(save_sharded *sharded);

/* Collective, when they have agreed: writes the data into `folder`, and notes what was saved in the
 * store's context. `shares_none`: on all ranks. */
int save_sharded_write(save_sharded *sharded, const char *folder, bool shares_none,
                       move_progress *progress, dcp_report *report, dcp_error *err);

/* Not collective: writes the tables, and makes the files durable. */
int save_sharded_finish(save_sharded *sharded, dcp_report *report, dcp_error *err);
