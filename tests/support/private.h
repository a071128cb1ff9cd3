/* Private stores for tests: directories of their own simulate nodes. */
#ifndef TESTS_MPI_PRIVATE_H
#define TESTS_MPI_PRIVATE_H

#include "support/scratch.h"

/* The directory of node `node` in the store of that name. */
static inline void node_dir(const scratch *s, const char *name, int node, char *dir) {
    snprintf(dir, PATH_MAX, "%s/%s-%d", s->root, name, node);
}

/* Saves what this rank of `comm` holds under `how` as `step` into its own directory. */
static inline void private_save(dcp_comm *comm, const char *dir, const given *g, scheme how,
                                uint64_t step) {
    held h;
    dcp_store *store = NULL;
    dcp_save_options options = {.size = sizeof options, .layout = DCP_LAYOUT_SHARDED};
    dcp_store_options to = {.size = sizeof to, .private_dirs = 1, .replace = 1};
    SUCCEEDS(dcp_store_open(comm, dir, &to, &store, err));
    held_make(&h, g, how, dcp_comm_rank(comm), dcp_comm_size(comm), 1);
    SUCCEEDS(dcp_save(store, step, h.state, GIVEN_JSON, &options, NULL, err));
    held_free(&h);
    dcp_store_close(store);
}

/* Loads from what the ranks of `comm` see under their paths, and checks that it is the given
 * content. */
static inline void private_load(dcp_comm *comm, const char *path, const given *g, scheme how,
                                uint64_t step) {
    held h;
    dcp_checkpoint *ckpt = NULL;
    SUCCEEDS(dcp_checkpoint_open_private(comm, path, &ckpt, err));
    CHECK(dcp_checkpoint_step(ckpt) == step);
    held_make(&h, g, how, dcp_comm_rank(comm), dcp_comm_size(comm), 0);
    SUCCEEDS(dcp_load(ckpt, h.state, NULL, err));
    if (!held_is_given(&h, g)) check_failed(__FILE__, __LINE__, scheme_names[how]);
    held_free(&h);
    dcp_checkpoint_close(ckpt);
}

/* The communicator of the ranks with that color; every rank gets one. */
static inline dcp_comm *part_of(const scratch *s, int color) {
    MPI_Comm part;
    dcp_comm *comm = NULL;
    MPI_Comm_split(MPI_COMM_WORLD, color, s->rank, &part);
    SUCCEEDS(dcp_comm_from_mpi(part, &comm, err));
    MPI_Comm_free(&part);
    return comm;
}

#endif
