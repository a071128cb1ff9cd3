/* What a save needs of a store: a folder to write into, and its publication. */
#pragma once

#include "comm/vote.h"
#include "store/store.h"

/* Lets a save of that step replace the existing one, which nobody has read, whatever
 * options.replace says. */
void store_allow_replacement(dcp_store *store, uint64_t step);

/* Collective: *is_there becomes 0 if any node's directory, or the step in it, is missing. */
int store_has_step(dcp_store *store, uint64_t step, uint64_t *is_there, dcp_error *err);

/* Not collective. Leaders make an empty `DIR/.tmp-step-N`; each rank gets its node's path (PATH_MAX
 * bytes). Leaders may write there at once, other ranks once store_begin_agree has returned DCP_OK.
 * Returns DCP_ERR_STATE if step-N exists on all nodes, is not about to be abandoned, and
 * options.replace is 0; or if it does not exist, all nodes have a later one that is not about to be
 * abandoned, and neither options.replace nor options.keep_latest is set. With several nodes, only
 * store_begin_agree finds that out. */
int store_begin(dcp_store *store, uint64_t step, char *tmp_path, dcp_error *err);

/* Collective: how store_begin, and what a rank has done after it, has ended on all ranks; `status`
 * is this rank's. Runs the vote `v`, after adding what leaders have found. */
int store_begin_agree(dcp_store *store, int status, uint64_t step, comm_vote *v, dcp_error *err);

/* Not collective, once the node's files are in the temporary folder: leaders add about.json (the
 * library's members: see format/about.h; `members_json`: an object with further ones, or NULL), and
 * make the folder durable. */
int store_finish(dcp_store *store, uint64_t step, const char *members_json, dcp_error *err);

/* Collective, once all ranks know that all files are complete and durable and that no store_finish
 * has failed. Leaders set later steps aside if the run went back, and rename the folder; when all
 * have done so, they repoint `latest` and apply `keep`. From then on the step counts as intact. A
 * failure to remove old steps is logged, not returned. */
int store_publish(dcp_store *store, uint64_t step, dcp_error *err);

/* Collective, after a save or a removal has failed with `status` on all ranks. Returns
 * DCP_ERR_BUSY, with the new writer's name, if another writer has taken any node's directory over
 * and removed the save's folder, and DCP_ERR_NOT_FOUND if one was moved or removed; otherwise
 * returns `status`, and leaves *err. */
int store_find_cause(dcp_store *store, int status, dcp_error *err);

/* Not collective: leaders remove the temporary folder of a save that failed. Never fails. */
void store_rollback(dcp_store *store, uint64_t step);

/* For leaders: makes DIR/latest lead to the step, or removes it. It is for people; programs look
 * for the newest complete step. So a failure is only logged. */
void store_point_latest(const dcp_store *store, uint64_t step);
void store_drop_latest(const dcp_store *store);
