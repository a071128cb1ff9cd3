/* Nodes of a private store, and stores of a list, that were absent while the run continued without
 * them. store/store.h defines the terms: lineage, past, branch. */
#pragma once

#include "store/store.h"

/* Collective; called when the store is opened. On each node, sets aside the steps that other nodes
 * saved again, or set aside, while this node was absent. Otherwise redundancy could rebuild a
 * superseded step from the files of the node that was absent, or mix them with the files of the
 * later save. Chooses the number of the store's next save, which is higher than the number of any
 * save on any node.
 *
 * DCP_ERR_IO, DCP_ERR_NO_MEMORY: the about.json of a step could not be read. In a private store the
 * about.json of every step is read; in a shared store, only that of the newest complete step whose
 * about.json is intact. It is not an error if about.json is missing or damaged: then it is unknown
 * which save the step is from, and the step remains. If another node has an intact one, and the
 * step has redundancy files, about.json is written again. */
int store_returned_reconcile(dcp_store *store, dcp_error *err);

/* Returns true if the run has gone back as the lineage `own` of a store's saves does not say, or
 * has left a branch that they belong to. */
bool store_returned_has_news(const store_lineage *own, const store_lineage *run);

/* Collective. In a shared store, store_returned_reconcile reads only one about.json; this function
 * reads those of all complete steps, and updates the store's lineage, since a step with an earlier
 * save may have been renamed back. Returns the same errors as store_returned_reconcile. */
int store_returned_learn(dcp_store *store, dcp_error *err);

/* Collective. `run` is the lineage that the latest save in any store of the list records. On each
 * node of this store, sets aside two kinds of steps that have the run's id:
 * - steps that are past according to `run`. But if such a step is also past according to this
 *   store's own saves, it remains: somebody renamed it back by hand;
 * - steps of a branch, from the point at which the branch left the run.
 * Steps of other runs remain. So do steps with a damaged about.json that are before `after`, which
 * is one more than the run's newest step: the run has a step that is at least as new. From now on
 * the store's saves belong to the run. Returns the same errors as store_returned_reconcile. */
int store_returned_set_aside(dcp_store *store, const store_lineage *run, uint64_t after,
                             dcp_error *err);

/* On leaders, returns the id of the run to which the store's saves belong. If the store has no
 * saves yet, returns the id that its first save will record, which is the same on all ranks. */
uint64_t store_returned_id(const dcp_store *store);

struct json_t;

/* Adds the members of about.json in which the store's next save records its number and its lineage.
 * Returns 0, or -1 if memory is short. */
int store_returned_describe(const dcp_store *store, struct json_t *about);

/* Called when the run has gone back and later steps were set aside in all stores of a list. From
 * now on all saves of this store record that the run went back, even if it goes back once more
 * before the next save. */
void store_returned_go_back(dcp_store *store);

/* Called when the save that store_returned_describe has described is published. Records this save
 * and its lineage in *store. */
void store_returned_record(dcp_store *store);
