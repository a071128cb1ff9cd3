/* After a failure no receive remains posted: a message that arrives later matches none, so the
 * memory that was to hold it can be used for something else. With small and large messages. */
#include <stdlib.h>
#include <string.h>

#include "comm/batch.h"
#include "comm/host.h"
#include "dcp/mpi.h"
#include "support/check.h"

#define LARGE ((size_t)1 << 20)

static void give_up(comm_pairs *pairs, unsigned char *buffer, size_t bytes) {
    comm_batch batch = {.pairs = pairs};
    comm_batch_receive(&batch, buffer, bytes, 1);
    comm_watch_break(pairs->watch, COMM_FAILED, 1, 1);
    CHECK(comm_batch_finish(&batch) != 0);
}

static void check_bytes(const unsigned char *buffer, size_t bytes, unsigned char value) {
    for (size_t i = 0; i < bytes; i++) CHECK(buffer[i] == value);
}

static void message_after_failure(int rank, size_t bytes) {
    dcp_comm *comm;
    CHECK(dcp_comm_from_mpi(MPI_COMM_WORLD, &comm, NULL) == DCP_OK);
    comm_pairs *pairs = &((comm_mpi *)comm->ctx)->pairs;
    unsigned char *buffer = malloc(bytes), *other = malloc(bytes);
    MPI_Status status;
    memset(buffer, rank, bytes);
    if (rank == 0) give_up(pairs, buffer, bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1) MPI_Send(buffer, (int)bytes, MPI_BYTE, 0, 1, pairs->comm);
    if (rank == 0) {
        MPI_Probe(1, MPI_ANY_TAG, pairs->comm, &status); /* it has arrived */
        check_bytes(buffer, bytes, 0);
        MPI_Recv(other, (int)bytes, MPI_BYTE, 1, status.MPI_TAG, pairs->comm, MPI_STATUS_IGNORE);
        check_bytes(other, bytes, 1);
        check_bytes(buffer, bytes, 0);
    }
    free(buffer);
    free(other);
    dcp_comm_destroy(comm);
}

int main(int argc, char **argv) {
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    setenv("DCP_SHARED_MEMORY", "0", 1);
    message_after_failure(rank, 8);
    message_after_failure(rank, LARGE);
    MPI_Finalize();
    return 0;
}
