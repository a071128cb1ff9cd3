/* The whole save, by whichever thread. */
#pragma once

#include "save/request.h"

/* Collective, with a store that has its context: from planning to publication. */
int save_run(dcp_store *store, const save_request *r, move_progress *progress, dcp_report *report,
             dcp_error *err);
