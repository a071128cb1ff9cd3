/* Layout sharded: files of their own, each written by one rank. */
#pragma once

#include "save/plan.h"
#include "save/request.h"

/* Collective: writes the files into `folder`, and notes what was saved in the store's context. */
int save_sharded(dcp_store *store, const save_request *request, const save_plan *plan,
                 const char *folder, move_progress *progress, dcp_report *report, dcp_error *err);
