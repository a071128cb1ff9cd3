/* How the public calls of a save begin. */
#pragma once

#include "save/request.h"

typedef enum save_call { SAVE_NOW, SAVE_ASYNC, SAVE_REWRITE } save_call;

/* Waits for this rank's save in flight, or refuses (DCP_ERR_BUSY), as the options say. The store
 * has its context then. `status` is what became of the call on this rank so far. */
int save_call_begin(dcp_store *store, int status, save_call call, const dcp_save_options *options,
                    dcp_error *err);

/* Collective: how a save begins on all ranks, which make the same call and wait alike. `status` is
 * what became of it on this rank so far. `r` (NULL: the save does not get that far) learns what all
 * ranks have told for its plan. */
int save_call_agree(dcp_store *store, int status, save_call call, const dcp_save_options *options,
                    save_request *r, dcp_error *err);

/* Collective: dcp_save up to where HDF5 has laid the files out; save_run, by any thread, does the
 * rest. `status` is what became
 * of the arguments on this rank so far. `state` is borrowed until then. `r`, zeroed before, is to
 * be freed in either case. */
int save_call_plan(dcp_store *store, int status, uint64_t step, const dcp_state *state,
                   const char *json, const dcp_save_options *options, save_request *r,
                   dcp_error *err);
