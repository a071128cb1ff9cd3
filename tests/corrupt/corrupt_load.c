/* A load that reads a flipped byte fails with DCP_ERR_CORRUPT on every rank, and names the tensor;
 * damage in what a load does not use has no effect. */
#include <mpi.h>

#include "damage.h"
#include "dcp/mpi.h"
#include "support/check.h"
#include "tiny.h"

static dcp_comm *comm;
static int rank, size;

/* Opens and loads the whole step; returns the first failure. Ends the test if ranks differ. */
static int load(const char *step, dcp_error *err) {
    tiny t;
    dcp_checkpoint *ckpt;
    int status = dcp_checkpoint_open(comm, step, &ckpt, err);
    if (status == DCP_OK) {
        CHECK(tiny_make(&t, rank, size, 0) == 0);
        status = dcp_load(ckpt, t.state, NULL, err);
        if (status == DCP_OK) CHECK(tiny_is_filled(&t, rank, size));
        tiny_free(&t);
        dcp_checkpoint_close(ckpt);
    }
    int low = status, high = status;
    MPI_Allreduce(MPI_IN_PLACE, &low, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, &high, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    CHECK(low == high);
    return status;
}

/* Rank 0 damages the file; all ranks load, and all get the same result. */
static void check_flip(const char *step, const victim *v, size_t at, const char *part) {
    dcp_error err = {0};
    if (rank == 0) CHECK(victim_flip(v, at, 4) == 0);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(load(step, &err) == DCP_ERR_CORRUPT);
    if (!strstr(err.message, part)) fprintf(stderr, "'%s' is not in: %s\n", part, err.message);
    CHECK(strstr(err.message, part));
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) CHECK(victim_mend(v, at) == 0);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(load(step, &err) == DCP_OK);
}

static void check_tensors(const char *step, const victim *v) {
    static unsigned char data[8 << 20];
    static const size_t which[] = {0, 2, 5, 7, 12, 19, 23};
    for (size_t i = 0; i < sizeof which / sizeof *which; i++) {
        const dcp_tensor *tensor = tiny_tensor(which[i]);
        tiny_fill(which[i], data);
        uint64_t bytes = dcp_tensor_bytes(tensor);
        size_t at = victim_find(v, data, bytes);
        CHECK(at < v->n);
        check_flip(step, v, at, tensor->path);
        check_flip(step, v, at + bytes - 1, tensor->path);
    }
}

static void check_tables(const char *step, const victim *v) {
    check_flip(step, v, 0, "state.h5");
    check_flip(step, v, 4095, "state.h5");
    check_flip(step, v, victim_find(v, "/model/big.weight", 17), "state.h5");
    check_flip(step, v, victim_find(v, "\"samples\"", 9), "state.h5");
}

/* Loads a part of the tensors, none of which is damaged. */
static void check_part(const char *step, const victim *v) {
    static unsigned char data[8 << 20];
    float norm[3] = {0};
    dcp_state *state;
    dcp_checkpoint *ckpt;
    tiny_fill(2, data);
    size_t at = victim_find(v, data, dcp_tensor_bytes(tiny_tensor(2)));
    if (rank == 0) CHECK(victim_flip(v, at, 4) == 0);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(dcp_state_create(&state, NULL) == DCP_OK);
    CHECK(dcp_state_add(state, tiny_tensor(11), NULL, norm, NULL) == DCP_OK);
    CHECK(dcp_checkpoint_open(comm, step, &ckpt, NULL) == DCP_OK);
    CHECK(dcp_load(ckpt, state, NULL, NULL) == DCP_OK);
    tiny_fill(11, data);
    CHECK(memcmp(norm, data, sizeof norm) == 0);
    dcp_checkpoint_close(ckpt);
    dcp_state_destroy(state);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) CHECK(victim_mend(v, at) == 0);
}

int main(int argc, char **argv) {
    char root[] = "/tmp/dcp-load-XXXXXX", step[64];
    dcp_error err = {0};
    victim v;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(dcp_comm_from_mpi(MPI_COMM_WORLD, &comm, NULL) == DCP_OK);
    if (rank == 0) CHECK(mkdtemp(root));
    MPI_Bcast(root, sizeof root, MPI_BYTE, 0, MPI_COMM_WORLD);
    snprintf(step, sizeof step, "%s/step-00000003", root);
    CHECK(tiny_save(comm, root, 3, DCP_LAYOUT_GLOBAL, &err) == DCP_OK);
    CHECK(victim_open(&v, step, "state.h5") == 0);
    MPI_Barrier(MPI_COMM_WORLD); /* all ranks have opened the file before rank 0 damages it */
    check_tensors(step, &v);
    check_tables(step, &v);
    check_part(step, &v);
    victim_close(&v);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) remove_folder_tree(root);
    dcp_comm_destroy(comm);
    MPI_Finalize();
    return 0;
}
