/* How the public calls that save begin. */
#pragma once

#include "save/request.h"

typedef enum save_call { SAVE_NOW, SAVE_ASYNC, SAVE_REWRITE } save_call;

/* Makes the store's context. If a save is in flight on this rank, waits for it or returns
 * DCP_ERR_BUSY, depending on options->when_busy. `status` is this rank's status so far. */
int save_call_begin(dcp_store *store, int status, save_call call, const dcp_save_options *options,
                    dcp_error *err);

/* Collective: begins a save on all ranks. They must make the same call with the same when_busy.
 * `status` is this rank's status so far. Sets r->agreed to the outcome of the vote about all ranks'
 * requests; `r` is NULL if this rank has no request. */
int save_call_agree(dcp_store *store, int status, save_call call, const dcp_save_options *options,
                    save_request *r, dcp_error *err);

/* Collective: does the first part of dcp_save, until HDF5 has laid the files out. save_run, on any
 * thread, does the rest. `status` is this rank's status so far. `state` is borrowed until the end
 * of the save. `r` must be zeroed by the caller, and must be freed whether or not the call
 * succeeds. */
int save_call_plan(dcp_store *store, int status, uint64_t step, const dcp_state *state,
                   const char *json, const dcp_save_options *options, save_request *r,
                   dcp_error *err);
