/* Layout sharded: files of their own, each written by one rank. */
#pragma once

#include "save/plan.h"
#include "save/request.h"

typedef struct save_sharded save_sharded;

/* Not collective: memory, before the ranks agree to write. *told is for the least of all ranks'. To
 * be freed in either case. */
int save_sharded_make(dcp_store *store, const save_request *request, const save_plan *plan,
                      save_sharded **out, uint64_t *told, dcp_error *err);
/* NULL is ignored. */
void save_sharded_free(save_sharded *sharded);

/* Collective, when they have agreed: writes the data into `folder`, and notes what was saved in the
 * store's context. */
int save_sharded_write(save_sharded *sharded, const char *folder, uint64_t told,
                       move_progress *progress, dcp_report *report, dcp_error *err);

/* Not collective: writes the tables, and makes the files durable. */
int save_sharded_finish(save_sharded *sharded, dcp_report *report, dcp_error *err);
