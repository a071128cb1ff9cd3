/* How the public calls of a save begin. */
#pragma once

#include "dcp/save.h"
#include "store/store.h"

typedef enum save_call { SAVE_NOW, SAVE_ASYNC, SAVE_REWRITE } save_call;

/* Waits for this rank's save in flight, or refuses (DCP_ERR_BUSY), as the options say. The store
 * has its context then. */
int save_call_begin(dcp_store *store, save_call call, const dcp_save_options *options,
                    dcp_error *err);

/* Collective: how a save begins on all ranks, which make the same call and wait alike. `status` is
 * what became of it on this rank so far. */
int save_call_agree(dcp_store *store, int status, save_call call, const dcp_save_options *options,
                    dcp_error *err);
