/* Rounds of all-to-alls with sizes of every kind: each byte arrives where it belongs. */
#include "comm/rounds.h"

#include <mpi.h>
#include <stdlib.h>

#include "check.h"
#include "dcp/mpi.h"

#define ROUNDS 5

static uint64_t bytes_of(size_t round, int from, int to) {
    uint64_t mixed = (round * 7 + (uint64_t)from * 3 + (uint64_t)to * 5) % 11;
    return mixed < 4 ? 0 : mixed * mixed * mixed * 10;
}

static unsigned char pattern(size_t round, int from, int to, uint64_t i) {
    return (unsigned char)(round * 101 + (uint64_t)from * 31 + (uint64_t)to * 57 + i * 7);
}

static void run_round(const comm_rounds *r, size_t round) {
    int own = r->comm->rank, size = r->comm->size;
    unsigned char *out = r->out;
    for (int to = 0; to < size; to++)
        for (uint64_t i = 0; i < bytes_of(round, own, to); i++) *out++ = pattern(round, own, to, i);
    CHECK(comm_rounds_run(r, round, NULL) == DCP_OK);
    const unsigned char *in = r->in;
    for (int from = 0; from < size; from++)
        for (uint64_t i = 0; i < bytes_of(round, from, own); i++)
            CHECK(*in++ == pattern(round, from, own, i));
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    dcp_comm *comm;
    comm_rounds r;
    CHECK(dcp_comm_from_mpi(MPI_COMM_WORLD, &comm, NULL) == DCP_OK);
    CHECK(comm_rounds_make(&r, comm, ROUNDS, NULL) == DCP_OK);
    size_t ranks = (size_t)comm->size;
    for (size_t round = 0; round < ROUNDS; round++)
        for (size_t to = 0; to < ranks; to++)
            r.send[round * ranks + to] = bytes_of(round, comm->rank, (int)to);
    CHECK(comm_rounds_agree(&r, NULL) == DCP_OK);
    for (size_t round = 0; round < ROUNDS; round++) {
        for (size_t from = 0; from < ranks; from++)
            CHECK(r.receive[round * ranks + from] == bytes_of(round, (int)from, comm->rank));
        run_round(&r, round);
    }
    comm_rounds_free(&r);
    dcp_comm_destroy(comm);
    MPI_Finalize();
    return 0;
}
