/* A communicator made of a caller's five functions saves the same bytes as MPI's, and loads; a
 * function that fails is DCP_ERR_COMM on the rank that saw it. */
#include "support/scratch.h"
#include "support/unsigned_allreduce.h"

static int broadcast(void *ctx, void *buf, uint64_t bytes, int root) {
    (void)ctx;
    return MPI_Bcast(buf, (int)bytes, MPI_BYTE, root, MPI_COMM_WORLD);
}

static int allreduce(void *ctx, uint64_t *buf, uint64_t count, dcp_reduce op) {
    int *calls_left = ctx;
    if (calls_left && --*calls_left < 0) return 42;
    return unsigned_allreduce(buf, count, op, MPI_COMM_WORLD);
}

static int gather(void *ctx, const void *send, uint64_t bytes, void *recv, int root) {
    (void)ctx;
    return MPI_Gather(send, (int)bytes, MPI_BYTE, recv, (int)bytes, MPI_BYTE, root, MPI_COMM_WORLD);
}

static int alltoall(void *ctx, const void *send, const uint64_t *send_bytes, void *recv,
                    const uint64_t *recv_bytes) {
    int size, n[4][64];
    (void)ctx;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int r = 0, out = 0, in = 0; r < size; r++) {
        n[0][r] = (int)send_bytes[r], n[1][r] = out, out += n[0][r];
        n[2][r] = (int)recv_bytes[r], n[3][r] = in, in += n[2][r];
    }
    return MPI_Alltoallv(send, n[0], n[1], MPI_BYTE, recv, n[2], n[3], MPI_BYTE, MPI_COMM_WORLD);
}

static int barrier(void *ctx) {
    (void)ctx;
    return MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv) {
    scratch s;
    given g;
    dcp_comm *own;
    dcp_comm_ops ops = {.size = sizeof(dcp_comm_ops),
                        .broadcast = broadcast,
                        .allreduce = allreduce,
                        .gather = gather,
                        .alltoall = alltoall,
                        .barrier = barrier};
    scratch_begin(&s, &argc, &argv);
    given_make(&g, 0);
    SUCCEEDS(dcp_comm_from_ops(&ops, NULL, s.rank, s.size, &own, err));
    scratch_save(&s, s.comm, "mpi", &g, BLOCKS, DCP_LAYOUT_GLOBAL);
    scratch_save(&s, own, "own", &g, BLOCKS, DCP_LAYOUT_GLOBAL);
    CHECK(scratch_same(&s, "mpi/step-00000005/state.h5", "own/step-00000005/state.h5"));
    scratch_load(&s, own, "mpi", &g, STRIPES);
    dcp_comm_destroy(own);

    /* All ranks lose the network at the same call, as no rank could continue after it. */
    for (int calls = 2, lost = 1; calls < 9 && lost && s.size > 1; calls++) {
        held h;
        dcp_error failure = {0};
        int left = 1 << 20;
        SUCCEEDS(dcp_comm_from_ops(&ops, &left, s.rank, s.size, &own, err));
        dcp_store *store = scratch_store(&s, own, "own");
        held_make(&h, &g, ROWS, s.rank, s.size, 1);
        left = calls;
        int status = dcp_save(store, 6, h.state, NULL, NULL, NULL, &failure);
        lost = left < 0;
        CHECK(lost || calls > 5); /* there are no more calls than that */
        CHECK(status == (lost ? DCP_ERR_COMM : DCP_OK));
        CHECK(!lost || strstr(failure.message, "code 42"));
        held_free(&h);
        dcp_store_close(store);
        dcp_comm_destroy(own);
        scratch_load(&s, s.comm, "own", &g, ROWS);
    }
    given_free(&g);
    return scratch_end(&s);
}
