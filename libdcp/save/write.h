/* Writing the files of a step, in both layouts. */
#pragma once

#include <stdbool.h>

#include "save/image.h"
#include "save/plan.h"
#include "save/request.h"

/* Functions that write an image, from creating its file to making it durable. */

/* On rank 0, records that the file may be recycled later. Not collective; called after
 * save_image_finish. */
void save_image_note_recycled(const save_image *im, uint64_t step);

/* Prepares the image for writing; not collective. Called after save_reuse_prepare and before the
 * ranks agree to write. Rank 0 creates the file, or uses the store's recycled file if its layout is
 * the same. */
int save_image_begin(save_image *im, save_sharing *sharing, dcp_error *err);

/* Moves the data. Collective over the image's ranks, after they have agreed to write. Adds the
 * times to the report. */
int save_image_write(save_image *im, const save_sharing *sharing, dcp_report *report,
                     dcp_error *err);
/* Collective: joins the checksums of the ranks' bytes. */
int save_image_join_sums(save_image *im, dcp_error *err);

/* Not collective: rank 0 writes the tables and the user block, and each rank makes its writes
 * durable. */
int save_image_finish(save_image *im, dcp_report *report, dcp_error *err);

/* Functions that write the files of layout sharded; each file is written by one rank. */

typedef struct save_sharded save_sharded;

/* Allocates memory, before the ranks agree to write. Not collective. Sets *shares_none to true if
 * none of this rank's files can share extents with the last step. *out must be freed whether or not
 * the call succeeds. */
int save_sharded_make(dcp_store *store, const save_request *request, const save_plan *plan,
                      save_sharded **out, bool *shares_none, dcp_error *err);
/* NULL is ignored. */
void save_sharded_free(save_sharded *sharded);

/* Writes the data into `folder`, and records in the store's context what was saved. Collective,
 * after the ranks have agreed to write. `shares_none` is the outcome for all ranks. */
int save_sharded_write(save_sharded *sharded, const char *folder, bool shares_none,
                       move_progress *progress, dcp_report *report, dcp_error *err);

/* Not collective: writes the tables, and makes the files durable. */
int save_sharded_finish(save_sharded *sharded, dcp_report *report, dcp_error *err);
