/* The functions of a store for saves: making a folder to write into, and publishing it. */
#pragma once

#include "comm/vote.h"
#include "store/store.h"

/* Lets a save of `step` replace the existing step, which nobody has read, even if options.replace
 * is 0. */
void store_allow_replacement(dcp_store *store, uint64_t step);

/* Collective: sets *is_there to 0 if any node's directory, or the step in it, is missing. */
int store_has_step(dcp_store *store, uint64_t step, uint64_t *is_there, dcp_error *err);

/* Not collective. Leaders make an empty `DIR/.tmp-step-N`; each rank gets the path on its node
 * (PATH_MAX bytes). Leaders may write into this folder immediately, other ranks only after
 * store_begin_agree has returned DCP_OK. Steps that are about to be set aside count as missing.
 * Returns DCP_ERR_STATE in two cases; with several nodes, only store_begin_agree detects them:
 * - step-N exists on all nodes, and options.replace is 0;
 * - step-N does not exist, all nodes have a later step, and neither options.replace nor
 *   options.keep_latest is set. */
int store_begin(dcp_store *store, uint64_t step, char *tmp_path, dcp_error *err);

/* Collective: agrees on the outcome of store_begin and of the ranks' work since; `status` is this
 * rank's status. Adds the leaders' results to the vote `v` and runs it. */
int store_begin_agree(dcp_store *store, int status, uint64_t step, comm_vote *v, dcp_error *err);

/* Leaders add about.json and make the folder durable. Not collective; called once the node's files
 * are in the temporary folder. about.json contains the library's members (format/about.h) and the
 * members of the object `members_json` (NULL: none). */
int store_finish(dcp_store *store, uint64_t step, const char *members_json, dcp_error *err);

/* Publishes the step. Collective; called once all ranks know that all files are complete and
 * durable and that no store_finish has failed. Leaders set later steps aside if the run went back,
 * and rename the folder. When all leaders have done so, they repoint `latest` and apply `keep`.
 * From then on the step counts as intact. A failure to remove old steps is logged, not returned. */
int store_publish(dcp_store *store, uint64_t step, dcp_error *err);

/* Finds out whether a save or a removal that failed with `status` on all ranks failed because a
 * directory was lost. Collective. Returns DCP_ERR_BUSY, with the new writer's name, if another
 * writer has taken any node's directory. Returns DCP_ERR_NOT_FOUND if any directory was moved or
 * removed. Otherwise returns `status` and leaves *err unchanged. */
int store_find_cause(dcp_store *store, int status, dcp_error *err);

/* Not collective: leaders remove the temporary folder of a save that failed. Never fails. */
void store_rollback(dcp_store *store, uint64_t step);

/* For leaders: store_point_latest makes DIR/latest point to the step; store_drop_latest removes
 * DIR/latest. The link is for people; programs search for the newest complete step. So a failure is
 * only logged. */
void store_point_latest(const dcp_store *store, uint64_t step);
void store_drop_latest(const dcp_store *store);
