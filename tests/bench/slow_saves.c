/* slow_saves DIR private|global|sharded MIB SAVES: saves as many MiB a rank so often, into a
 * private store in DIR/RANK or a shared one in DIR. A line of JSON a save, by rank 0: its seconds,
 * and whom the report names as slow. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dcp/dcp.h"
#include "dcp/mpi.h"

static void need(int status, const dcp_error *err) {
    if (status == DCP_OK) return;
    fprintf(stderr, "%s\n", err->message);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void tell(const dcp_report *r) {
    if (r->slow_ratio > 0)
        printf("{\"s\":%.3f,\"slow_rank\":%d,\"slow_ratio\":%.1f,\"slow_s\":%.2f,"
               "\"median_s\":%.2f}\n",
               r->total_s, r->slow_rank, r->slow_ratio, r->slow_s, r->median_s);
    else
        printf("{\"s\":%.3f,\"slow_rank\":null}\n", r->total_s);
    fflush(stdout);
}

int main(int argc, char **argv) {
    dcp_error err;
    dcp_comm *comm = NULL;
    dcp_store *store = NULL;
    dcp_state *state = NULL;
    char dir[PATH_MAX];
    MPI_Init(&argc, &argv);
    if (argc != 5) return 2;
    need(dcp_comm_from_mpi(MPI_COMM_WORLD, &comm, &err), &err);
    const int rank = dcp_comm_rank(comm), size = dcp_comm_size(comm);
    const int is_private = !strcmp(argv[2], "private");
    const uint64_t bytes = strtoull(argv[3], NULL, 10) << 20;
    dcp_store_options options = {
        .size = sizeof options, .keep = 1, .replace = 1, .private_dirs = is_private};
    snprintf(dir, sizeof dir, is_private ? "%s/%d" : "%s", argv[1], rank);
    need(dcp_store_open(comm, dir, &options, &store, &err), &err);
    const dcp_tensor t = {"/model/a", DCP_U8, 1, {bytes * (uint64_t)size}};
    const dcp_box box = dcp_box_chunk(&t, rank, size);
    unsigned char *data = malloc(bytes);
    need(dcp_state_create(&state, &err), &err);
    need(dcp_state_add(state, &t, &box, data, &err), &err);
    const dcp_save_options save = {.size = sizeof save,
                                   .layout = strcmp(argv[2], "global") ? DCP_LAYOUT_SHARDED
                                                                       : DCP_LAYOUT_GLOBAL};
    for (int step = 1; step <= atoi(argv[4]); step++) {
        dcp_report report = DCP_REPORT_INIT;
        memset(data, step, bytes);
        need(dcp_save(store, (uint64_t)step, state, NULL, &save, &report, &err), &err);
        if (rank == 0) tell(&report);
    }
    dcp_state_destroy(state);
    dcp_store_close(store);
    dcp_comm_destroy(comm);
    free(data);
    MPI_Finalize();
    return 0;
}
