/* What a save needs of a store: a folder to write into, and its publication. */
#pragma once

#include "comm/vote.h"
#include "store/store.h"

/* A save of that step replaces the one that is there, which nobody has read, whatever
 * options.replace says. */
void store_allow_replacement(dcp_store *store, uint64_t step);

/* Collective: *is_there is 0 where any node's directory, or the step in it, is not there. */
int store_has_step(dcp_store *store, uint64_t step, uint64_t *is_there, dcp_error *err);

/* Not collective. Leaders make an empty `DIR/.tmp-step-N`; each rank gets its node's path (PATH_MAX
 * bytes), where it may write once store_begin_agree has returned DCP_OK; a leader may at once.
 * DCP_ERR_STATE where step-N exists on all nodes, is not about to be abandoned, and options.replace
 * is 0; or where it does not exist and all nodes have a later one that is not about to be abandoned
 * either, and neither options.replace nor options.keep_latest is set: of several nodes only
 * store_begin_agree finds out. */
int store_begin(dcp_store *store, uint64_t step, char *tmp_path, dcp_error *err);

/* Collective: how store_begin, and what a rank has done after it, has ended on all ranks; `status`
 * is this rank's. Runs the vote `v`, after adding what leaders have found. */
int store_begin_agree(dcp_store *store, int status, uint64_t step, comm_vote *v, dcp_error *err);

/* Not collective. The node's files in the temporary folder are all there; leaders add about.json
 * (the library's members: see about.h; `members_json`: an object with further ones, or NULL), and
 * make the folder durable. */
int store_finish(dcp_store *store, uint64_t step, const char *members_json, dcp_error *err);

/* Collective, once all ranks know that all files are complete and durable and that no store_finish
 * has failed. Leaders set later steps aside where a run went back, and rename; when all have done
 * so, they repoint `latest` and apply `keep`. The step counts as intact from then on. A failure to
 * remove old steps is logged, not returned. */
int store_publish(dcp_store *store, uint64_t step, dcp_error *err);

/* Collective, after a save or a removal has failed with `status` on all ranks. DCP_ERR_BUSY, with
 * the winner's name, where any node's directory has been taken by another writer, which took the
 * save's folder away, and DCP_ERR_NOT_FOUND where one was moved or removed; else `status`, and *err
 * stays. */
int store_find_cause(dcp_store *store, int status, dcp_error *err);

/* Not collective; leaders remove the temporary folder of a save that failed. Never fails. */
void store_rollback(dcp_store *store, uint64_t step);

/* Of leaders: DIR/latest leads to the step, or is not there. It is for people; programs look for
 * the newest complete step. So a failure is only logged. */
void store_point_latest(const dcp_store *store, uint64_t step);
void store_drop_latest(const dcp_store *store);
