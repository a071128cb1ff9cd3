/* Writing the files of a step, in both layouts. */
#pragma once

#include "save/image.h"
#include "save/plan.h"
#include "save/request.h"

/* Writing an image: from creating its file to making it durable. */

/* Not collective, after save_image_finish: on rank 0, notes that the file may be recycled later. */
void save_image_note_recycled(const save_image *im, uint64_t step);

/* Not collective, after save_reuse_prepare: all that comes before the ranks agree to write. Rank 0
 * creates the file, or uses the store's recycled one if that has the same layout. */
int save_image_begin(save_image *im, save_sharing *sharing, dcp_error *err);

/* Collective over the image's ranks, after they have agreed: moves the data. Adds the seconds to
 * the report. */
int save_image_write(save_image *im, const save_sharing *sharing, dcp_report *report,
                     dcp_error *err);
/* Collective: joins the checksums of what all ranks have moved. */
int save_image_join_sums(save_image *im, dcp_error *err);

/* Not collective: rank 0 writes tables and user block, each rank makes its writes durable. */
int save_image_finish(save_image *im, dcp_report *report, dcp_error *err);

/* Layout sharded: each file is written by one rank. */

typedef struct save_sharded save_sharded;

/* Not collective: allocates memory before the ranks agree to write. *shares_none: this rank's files
 * share no extents with the last step. To be freed in either case. */
int save_sharded_make(dcp_store *store, const save_request *request, const save_plan *plan,
                      save_sharded **out, bool *shares_none, dcp_error *err);
/* NULL is ignored. */
void save_sharded_free(save_sharded *sharded);

/* Collective, after they have agreed: writes the data into `folder`, and notes what was saved in
 * the store's context. `shares_none`: on all ranks. */
int save_sharded_write(save_sharded *sharded, const char *folder, bool shares_none,
                       move_progress *progress, dcp_report *report, dcp_error *err);

/* Not collective: writes the tables, and makes the files durable. */
int save_sharded_finish(save_sharded *sharded, dcp_report *report, dcp_error *err);
