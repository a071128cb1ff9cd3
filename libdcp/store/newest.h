/* The steps of a private store, of all nodes together. */
#pragma once

#include "comm/comm.h"
#include "dcp/store.h"

/* Collective: in *next one more than the newest step below `limit` that any node has, 0: none.
 * `steps`, in ascending order, are those in `dir` on this rank's node.
 *
 * Left out is a step that nodes have set aside, as the run went back, while all that have it still
 * were away and have come back with it: redundancy could rebuild it from their files alone. *passed
 * (may be NULL) is one more than the newest such step, 0: none. */
int store_newest_of_nodes(dcp_comm *comm, const char *dir, const dcp_step *steps, size_t n,
                          uint64_t limit, uint64_t *next, uint64_t *passed, dcp_error *err);

/* What the log says of such a step. */
#define STORE_CAME_BACK                                                                            \
    "step %llu is passed over: the run went back from it, and other nodes have set it aside as "    \
    ".abandoned-step-%08llu, while those that have it were away"
