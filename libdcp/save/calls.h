/* How the public calls of a save begin. */
#pragma once

#include "save/request.h"

typedef enum save_call { SAVE_NOW, SAVE_ASYNC, SAVE_REWRITE } save_call;

/* Waits for this rank's save in flight, or refuses (DCP_ERR_BUSY), as the options say. Gives the
 * store its context. `status` is this rank's so far. */
int save_call_begin(dcp_store *store, int status, save_call call, const dcp_save_options *options,
                    dcp_error *err);

/* Collective: begins a save on all ranks, which must make the same call and wait alike. `status` is
 * this rank's so far. `r` (NULL: this rank has no request) gets what all ranks know of each other's
 * requests. */
int save_call_agree(dcp_store *store, int status, save_call call, const dcp_save_options *options,
                    save_request *r, dcp_error *err);

/* Collective: does what dcp_save does until HDF5 has laid the files out; save_run, on any thread,
 * does the rest. `status` is this rank's so far. `state` is borrowed until the end of the save. `r`
 * is zeroed before, and is to be freed in either case. */
int save_call_plan(dcp_store *store, int status, uint64_t step, const dcp_state *state,
                   const char *json, const dcp_save_options *options, save_request *r,
                   dcp_error *err);
