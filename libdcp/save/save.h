/* The two layouts of a save, from inside. */
#ifndef DCP_SAVE_SAVE_H
#define DCP_SAVE_SAVE_H

#include "save/history.h"

/* Checks and copies the arguments of a save. Not collective; to be freed in either case. */
int save_request_make(const dcp_store *store, uint64_t step, const dcp_state *state,
                      const char *json, const dcp_save_options *options, save_request *r,
                      dcp_error *err);
void save_request_free(save_request *r);

typedef enum save_call { SAVE_NOW, SAVE_ASYNC, SAVE_REWRITE } save_call;

/* Waits for this rank's save in flight, or refuses (DCP_ERR_BUSY), as the options say. */
int save_turn(dcp_store *store, save_call call, const dcp_save_options *options, dcp_error *err);

/* Collective: how a save begins on all ranks, which make the same call and wait alike. `status` is
 * what became of it on this rank so far. */
int save_agree(dcp_store *store, int status, save_call call, const dcp_save_options *options,
               dcp_error *err);

/* Collective: the whole save, from planning to publication. */
int save_run(dcp_store *store, const save_request *r, save_progress *progress, dcp_report *report,
             dcp_error *err);

/* Collective: write the files of a step into `folder`, and fill store->noted. */
int save_global(dcp_store *store, const save_request *request, const struct save_layout *plan,
                const char *folder, save_progress *progress, dcp_report *report, dcp_error *err);
int save_sharded(dcp_store *store, const save_request *request, const struct save_layout *plan,
                 const char *folder, save_progress *progress, dcp_report *report, dcp_error *err);

#endif
