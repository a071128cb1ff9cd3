/* A scratch folder of all ranks, stores in it, and comparisons, for tests under mpirun. */
#ifndef TESTS_MPI_SCRATCH_H
#define TESTS_MPI_SCRATCH_H

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dcp/dcp.h"
#include "dcp/mpi.h"
#include "store/directory.h"
#include "support/check.h"
#include "support/given.h"

typedef struct scratch {
    char root[64];
    int rank, size;
    dcp_comm *comm, *self;
} scratch;

static inline void scratch_begin(scratch *s, int *argc, char ***argv) {
    int level;
    MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &level);
    memset(s->root, 0, sizeof s->root);
    snprintf(s->root, sizeof s->root, "/tmp/dcp-mpi-XXXXXX");
    CHECK(dcp_comm_from_mpi(MPI_COMM_WORLD, &s->comm, NULL) == DCP_OK);
    CHECK(dcp_comm_self(&s->self, NULL) == DCP_OK);
    s->rank = dcp_comm_rank(s->comm);
    s->size = dcp_comm_size(s->comm);
    if (s->rank == 0) CHECK(mkdtemp(s->root));
    MPI_Bcast(s->root, sizeof s->root, MPI_BYTE, 0, MPI_COMM_WORLD);
}

static inline int scratch_end(scratch *s) {
    MPI_Barrier(MPI_COMM_WORLD);
    if (s->rank == 0) CHECK(store_directory_remove(AT_FDCWD, s->root) == 0);
    dcp_comm_destroy(s->comm);
    dcp_comm_destroy(s->self);
    MPI_Finalize();
    return 0;
}

#define SUCCEEDS(call)                                                                             \
    do {                                                                                           \
        dcp_error succeeds_error = {0}, *err = &succeeds_error;                                    \
        if ((call) != DCP_OK) check_failed(__FILE__, __LINE__, succeeds_error.message);            \
    } while (0)

/* A store below the scratch folder, in which steps are replaced. */
static inline dcp_store *scratch_store(const scratch *s, dcp_comm *comm, const char *name) {
    char dir[PATH_MAX];
    dcp_store *store = NULL;
    dcp_store_options options = {.size = sizeof options, .replace = 1};
    snprintf(dir, sizeof dir, "%s/%s", s->root, name);
    SUCCEEDS(dcp_store_open(comm, dir, &options, &store, err));
    return store;
}

/* The newest step in the folder `name` of the scratch folder, opened by the ranks of `comm`. */
static inline dcp_checkpoint *scratch_open(const scratch *s, dcp_comm *comm, const char *name) {
    char dir[PATH_MAX];
    dcp_checkpoint *ckpt = NULL;
    snprintf(dir, sizeof dir, "%s/%s", s->root, name);
    SUCCEEDS(dcp_checkpoint_open(comm, dir, &ckpt, err));
    return ckpt;
}

/* Saves what this rank of `comm` holds under `how`. */
static inline void scratch_save(const scratch *s, dcp_comm *comm, const char *name, const given *g,
                                scheme how, dcp_layout layout) {
    held h;
    dcp_save_options options = {.size = sizeof options, .layout = layout};
    dcp_store *store = scratch_store(s, comm, name);
    held_make(&h, g, how, dcp_comm_rank(comm), dcp_comm_size(comm), 1);
    SUCCEEDS(dcp_save(store, 5, h.state, GIVEN_JSON, &options, NULL, err));
    held_free(&h);
    dcp_store_close(store);
}

/* Loads on the ranks of `comm` under `how`, and checks that it is the given content. */
static inline void scratch_load(const scratch *s, dcp_comm *comm, const char *name, const given *g,
                                scheme how) {
    held h;
    dcp_checkpoint *ckpt = scratch_open(s, comm, name);
    held_make(&h, g, how, dcp_comm_rank(comm), dcp_comm_size(comm), 0);
    SUCCEEDS(dcp_load(ckpt, h.state, NULL, err));
    CHECK(held_is_given(&h, g));
    held_free(&h);
    dcp_checkpoint_close(ckpt);
}

static inline unsigned char *scratch_read(const scratch *s, const char *name, size_t *bytes) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", s->root, name);
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    *bytes = (size_t)lseek(fd, 0, SEEK_END);
    unsigned char *data = malloc(*bytes + 1);
    CHECK(data && pread(fd, data, *bytes, 0) == (ssize_t)*bytes);
    close(fd);
    return data;
}

/* Returns 1 on rank 0 if two files below the scratch folder have the same bytes. */
static inline int scratch_same(const scratch *s, const char *one, const char *two) {
    size_t n, m;
    if (s->rank) return 1;
    unsigned char *a = scratch_read(s, one, &n), *b = scratch_read(s, two, &m);
    int same = n == m && memcmp(a, b, n) == 0;
    free(a);
    free(b);
    return same;
}

/* Checks that all ranks returned `expected` with the same error, whose message contains `text`. */
static inline void check_same_failure(int status, int expected, const dcp_error *err,
                                      const char *text) {
    dcp_error first = *err;
    MPI_Bcast(&first, sizeof first, MPI_BYTE, 0, MPI_COMM_WORLD);
    if (status != expected || err->status != expected || strcmp(first.message, err->message) ||
        !strstr(err->message, text))
        fprintf(stderr, "status %d (%d expected), message: %s; rank 0's: %s\n", status, expected,
                err->message, first.message);
    CHECK(status == expected && err->status == expected);
    CHECK(!strcmp(first.message, err->message) && strstr(err->message, text));
    CHECK(!strcmp(first.tensor, err->tensor) && !strcmp(first.path, err->path));
    CHECK(first.offset == err->offset && first.system_error == err->system_error);
    CHECK(first.n_ranks == err->n_ranks && !memcmp(first.ranks, err->ranks, sizeof err->ranks));
}

#endif
