/* Nodes of a private store, and stores of a list, that were away while the run continued without
 * them. */
#pragma once

#include "store/store.h"

/* Collective; called when the store is opened. On each node, sets aside the steps that other nodes
 * have saved again or set aside since. Otherwise redundancy could rebuild a superseded step from
 * the files of such a node, or mix them with the files of the later save. Gives the store's next
 * save a higher number than any save of any node has.
 *
 * DCP_ERR_IO, DCP_ERR_NO_MEMORY: the about.json of a step could not be read. In a private store
 * this can be any step; in a shared store only the newest step's is read. If the file is missing or
 * damaged, the save is unknown and its step remains. */
int store_returned_settle(dcp_store *store, dcp_error *err);

/* Collective. `run` is the lineage that the latest save records, in whichever store it is. On each
 * node, sets aside two kinds of the run's steps:
 * - steps that are past according to `run`. A step that is past according to this store's own
 *   saves, too, was renamed back by hand, and remains;
 * - steps of a branch that `run` does not know.
 * Steps of other runs remain. From now on the store's saves belong to the run. The errors are those
 * of store_returned_settle. */
int store_returned_forget(dcp_store *store, const store_lineage *run, dcp_error *err);

/* Returns the id of the lineage of the store's saves, even before the first save. Returns the same
 * on all ranks. */
uint64_t store_returned_id(const dcp_store *store);

struct json_t;

/* Adds the members of about.json in which the store's next save records its number and its lineage.
 * Returns 0, or -1 if memory is short. */
int store_returned_describe(const dcp_store *store, struct json_t *about);

/* Called when later steps were set aside in all stores of a list. From now on all saves of this
 * store record that the run went back, even if the run goes back once more before the first of
 * these saves. */
void store_returned_go_back(dcp_store *store);

/* Records that the save that store_returned_describe described is published. */
void store_returned_note(dcp_store *store);
