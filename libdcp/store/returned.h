/* Nodes of a private store, and stores of a list, that were away while the run went on without
 * them. */
#pragma once

#include "store/store.h"

/* Collective, as the store is opened. Sets aside, on each node, the steps that other nodes have
 * saved anew or set aside since: redundancy could rebuild them from that node's files, or mix them
 * with the later save's. Numbers the next save of this store after all that any node has.
 *
 * DCP_ERR_IO, DCP_ERR_NO_MEMORY: some step's about.json could not be read, of a shared store the
 * newest one's. One that is missing or damaged is of no known save, and its step stays. */
int store_returned_settle(dcp_store *store, dcp_error *err);

/* Collective: sets aside, on each node, those of the run's steps that are past by what the latest
 * save of all stores says, and by nothing that this store's own saves say (where those say it, the
 * step was renamed back by hand); and those of a branch, which that save knows nothing of. Steps of
 * other runs stay. From now on the store's saves are of that run. Errors as above. */
int store_returned_forget(dcp_store *store, const store_lineage *run, dcp_error *err);

/* The lineage of the store's saves, also before there is any; the same on all ranks. */
uint64_t store_returned_id(const dcp_store *store);

struct json_t;

/* Adds what about.json of the store's next save says for that. 0, or -1: memory is short. */
int store_returned_describe(const dcp_store *store, struct json_t *about);

/* Later steps are set aside in all stores of a list: all of their saves say so from now on, also
 * those of a store that is saved into only after the run has gone back again. */
void store_returned_go_back(dcp_store *store);

/* The save that was described is published. */
void store_returned_note(dcp_store *store);
