/* Nodes of a private store that were away while the run went on without them. */
#pragma once

#include "store/store.h"

/* Collective, as the store is opened. Sets aside, on each node, the steps that other nodes have
 * saved anew or set aside since: redundancy could rebuild them from that node's files, or mix them
 * with the later save's. Numbers the next save of this store after all that any node has.
 *
 * DCP_ERR_IO, DCP_ERR_NO_MEMORY: some step's about.json could not be read. One that is missing or
 * damaged is of no known save, and its step stays. */
int store_returned_settle(dcp_store *store, dcp_error *err);

struct json_t;

/* Adds what about.json of the store's next save says for that. 0, or -1: memory is short. */
int store_returned_describe(const dcp_store *store, struct json_t *about);
