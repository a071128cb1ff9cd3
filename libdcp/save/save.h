/* The whole save, by whichever thread. */
#ifndef DCP_SAVE_SAVE_H
#define DCP_SAVE_SAVE_H

#include "save/request.h"

/* Collective, with a store that has its context: from planning to publication. */
int save_run(dcp_store *store, const save_request *r, move_progress *progress, dcp_report *report,
             dcp_error *err);

#endif
