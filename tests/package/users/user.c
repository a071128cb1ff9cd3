/* What a program in C does with an installed libdcp. */
#include <stdio.h>
#include <stdlib.h>

#include <dcp/dcp.h>
#if USE_MPI
#include <dcp/mpi.h>
#endif

static dcp_error err;

static void check(int status) {
    if (status == DCP_OK) return;
    fprintf(stderr, "user.c: %s\n", err.message);
    exit(1);
}

int main(int argc, char **argv) {
    dcp_comm *comm = NULL;
    if (argc != 2) return 2;
#if USE_MPI
    MPI_Init(&argc, &argv);
    check(dcp_comm_from_mpi(MPI_COMM_WORLD, &comm, &err));
#else
    check(dcp_comm_self(&comm, &err));
#endif
    const int rank = dcp_comm_rank(comm), size = dcp_comm_size(comm);
    const dcp_tensor w = {"/model/w", DCP_F32, 2, {12, 5}};
    const dcp_box mine = dcp_box_chunk(&w, rank, size);
    const uint64_t n = dcp_box_elems(&mine, w.ndim);
    float data[12 * 5];
    for (uint64_t i = 0; i < n; i++) data[i] = (float)(rank * 100 + (int)i);
    dcp_state *state = NULL;
    dcp_store *store = NULL;
    dcp_checkpoint *ckpt = NULL;
    dcp_save_options options = DCP_SAVE_OPTIONS_INIT;
    dcp_report report = DCP_REPORT_INIT;
    options.layout = DCP_LAYOUT_SHARDED;
    check(dcp_state_create(&state, &err));
    check(dcp_state_add(state, &w, &mine, data, &err));
    check(dcp_store_open(comm, argv[1], NULL, &store, &err));
    check(dcp_save(store, 1, state, NULL, &options, &report, &err));
    dcp_store_close(store);
    for (uint64_t i = 0; i < n; i++) data[i] = 0;
    check(dcp_checkpoint_open(comm, argv[1], &ckpt, &err));
    check(dcp_load(ckpt, state, NULL, &err));
    for (uint64_t i = 0; i < n; i++)
        if (data[i] != (float)(rank * 100 + (int)i)) return 1;
    dcp_checkpoint_close(ckpt);
    dcp_state_destroy(state);
    dcp_comm_destroy(comm);
    if (rank == 0) printf("C on %d\n", size);
#if USE_MPI
    MPI_Finalize();
#endif
    return report.bytes != sizeof data;
}
