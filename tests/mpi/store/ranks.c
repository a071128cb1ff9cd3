/* A store of several ranks: all get rank 0's paths, and its failures in the same words. */
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/comm.h"
#include "dcp/dcp.h"
#include "dcp/mpi.h"
#include "store/directory.h"
#include "store/publication.h"
#include "support/check.h"

static void check_same_failure(int status, int expected, const dcp_error *err, const char *text) {
    CHECK(status == expected && err->status == expected && err->rank == 0);
    CHECK(strstr(err->message, text));
}

static int begin_together(dcp_store *store, uint64_t step, char *tmp, dcp_error *err) {
    int status = store_begin(store, step, tmp, err);
    comm_vote v = {0};
    return store_begin_agree(store, status, step, &v, err);
}

static int finish_together(dcp_store *store, uint64_t step, const char *members, dcp_error *err) {
    int status = comm_agree(store->comm, store_finish(store, step, members, err), err);
    return status ? status : store_publish(store, step, err);
}

static void check_store(dcp_comm *comm, const char *root) {
    int rank = dcp_comm_rank(comm);
    char dir[PATH_MAX], tmp[PATH_MAX], first_tmp[PATH_MAX];
    dcp_error err = {0};
    dcp_store *store, *second;
    /* Ranks other than 0 pass paths that do not matter. */
    snprintf(dir, sizeof dir, "%s/%s", rank == 0 ? root : "/nowhere", "store");
    CHECK(dcp_store_open(comm, dir, NULL, &store, &err) == DCP_OK);
    check_same_failure(dcp_store_open(comm, dir, NULL, &second, &err), DCP_ERR_BUSY, &err, "host");

    CHECK(begin_together(store, 5, tmp, &err) == DCP_OK);
    memcpy(first_tmp, tmp, sizeof tmp);
    CHECK(comm_broadcast(comm, first_tmp, sizeof first_tmp, 0, &err) == DCP_OK);
    CHECK(strcmp(tmp, first_tmp) == 0 && access(tmp, W_OK) == 0);
    CHECK(finish_together(store, 5, NULL, &err) == DCP_OK);
    CHECK(access(tmp, F_OK) != 0);
    check_same_failure(begin_together(store, 5, tmp, &err), DCP_ERR_STATE, &err, "exists already");

    CHECK(begin_together(store, 6, tmp, &err) == DCP_OK);
    check_same_failure(finish_together(store, 6, "no JSON", &err), DCP_ERR_ARG, &err, "");
    store_rollback(store, 6);
    CHECK(begin_together(store, 6, tmp, &err) == DCP_OK);
    CHECK(comm_barrier(comm, &err) == DCP_OK);
    store_rollback(store, 6);
    CHECK(rank != 0 || access(tmp, F_OK) != 0);
    dcp_store_close(store);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    dcp_comm *comm;
    char root[] = "/tmp/dcp-store-XXXXXX";
    CHECK(dcp_comm_from_mpi(MPI_COMM_WORLD, &comm, NULL) == DCP_OK);
    if (dcp_comm_rank(comm) == 0) CHECK(mkdtemp(root));
    check_store(comm, root);
    if (dcp_comm_rank(comm) == 0) CHECK(store_directory_remove(AT_FDCWD, root) == 0);
    dcp_comm_destroy(comm);
    MPI_Finalize();
    return 0;
}
