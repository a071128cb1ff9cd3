/* Layout global: one file, written by all ranks. */
#ifndef DCP_SAVE_GLOBAL_H
#define DCP_SAVE_GLOBAL_H

#include "save/layout.h"
#include "save/request.h"

/* Collective: writes the file into `folder`, and notes what was saved in the store's context. */
int save_global(dcp_store *store, const save_request *request, const save_layout *plan,
                const char *folder, move_progress *progress, dcp_report *report, dcp_error *err);

#endif
