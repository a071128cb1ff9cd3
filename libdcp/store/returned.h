/* Nodes of a private store, and stores of a list, that were away while the run continued without
 * them. */
#pragma once

#include "store/store.h"

/* Collective, when the store is opened. On each node, sets aside the steps that other nodes have
 * saved again or set aside since: redundancy could rebuild them from that node's files, or mix them
 * with those of the later save. Gives the next save of this store a higher number than any node
 * has.
 *
 * DCP_ERR_IO, DCP_ERR_NO_MEMORY: the about.json of some step, or of a shared store's newest step,
 * could not be read. If it is missing or damaged, the save is unknown and its step remains. */
int store_returned_settle(dcp_store *store, dcp_error *err);

/* Collective. On each node, sets aside those of the run's steps that are past according to the
 * latest save of all stores, unless this store's own saves say so as well (then the step was
 * renamed back by hand); and the steps of a branch, of which that save knows nothing. Steps of
 * other runs remain. From now on the store's saves belong to that run. The errors are those of
 * store_returned_settle. */
int store_returned_forget(dcp_store *store, const store_lineage *run, dcp_error *err);

/* Returns the lineage of the store's saves, even before the first one. The same on all ranks. */
uint64_t store_returned_id(const dcp_store *store);

struct json_t;

/* Adds the members of about.json that the store's next save needs for this. Returns 0, or -1 if
 * memory is short. */
int store_returned_describe(const dcp_store *store, struct json_t *about);

/* Called when later steps are set aside in all stores of a list. From now on all of their saves
 * record it, even those of a store that is saved into only after the run has gone back again. */
void store_returned_go_back(dcp_store *store);

/* Notes that the described save is published. */
void store_returned_note(dcp_store *store);
