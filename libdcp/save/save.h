/* The two layouts of a save, from inside. */
#ifndef DCP_SAVE_SAVE_H
#define DCP_SAVE_SAVE_H

#include "save/plan.h"

/* Collective: write the files of a step into `folder`. */
int save_global(dcp_store *store, const save_request *request, const struct save_layout *plan,
                const char *folder, dcp_report *report, dcp_error *err);
int save_sharded(dcp_store *store, const save_request *request, const struct save_layout *plan,
                 const char *folder, dcp_report *report, dcp_error *err);

#endif
