/* The whole save, by whichever thread. */
#pragma once

#include "save/request.h"

/* Collective, with a store that has its context: what has to be done by a thread that may call
 * HDF5, which is not thread-safe. The plan is left in the context. */
int save_prepare(dcp_store *store, const save_request *r, dcp_error *err);

/* Collective, after save_prepare: from a temporary folder to publication. HDF5 is not called, save
 * by engines that are not for any thread. */
int save_run(dcp_store *store, const save_request *r, move_progress *progress, dcp_report *report,
             dcp_error *err);
