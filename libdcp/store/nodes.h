/* Nodes: the ranks to whom a store's directory is the same one. */
#ifndef DCP_STORE_NODES_H
#define DCP_STORE_NODES_H

#include "store/store.h"

/* Collective: *leader is the lowest rank whose directory `dir_fd` is this rank's, *nodes how many
 * different directories there are. `dir` is for messages. */
int nodes_find(dcp_comm *comm, int dir_fd, const char *dir, int *leader, int *nodes,
               dcp_error *err);

/* The newest step before *step (UINT64_MAX: of all) that every node has complete, into *step;
 * *found = 0 where there is none. `steps` is the leader's own list, ascending; other ranks have
 * none. Collective where there are several nodes; of one, only the leader learns anything. */
int nodes_newest_step(dcp_store *store, const dcp_step *steps, size_t n, uint64_t *step, int *found,
                      dcp_error *err);

#endif
