/* Rounds of all-to-alls with sizes of every kind: each byte arrives at its place. */
#include "comm/messages.h"

#include <mpi.h>
#include <stdlib.h>

#include "dcp/mpi.h"
#include "support/check.h"

#define ROUNDS 5

static uint64_t bytes_of(size_t round, int from, int to) {
    uint64_t mixed = (round * 7 + (uint64_t)from * 3 + (uint64_t)to * 5) % 11;
    return mixed < 4 ? 0 : mixed * mixed * mixed * 10;
}

static unsigned char pattern(size_t round, int from, int to, uint64_t i) {
    return (unsigned char)(round * 101 + (uint64_t)from * 31 + (uint64_t)to * 57 + i * 7);
}

typedef int (*run_fn)(const comm_rounds *, size_t, const void *, void *, dcp_error *);

/* The answers have the sizes of the other direction. */
static void run_round(const comm_rounds *r, size_t round, int answers) {
    int own = r->comm->rank, size = r->comm->size;
    unsigned char *start = malloc(r->most_out + r->most_in), *in = malloc(r->most_out + r->most_in);
    unsigned char *out = start;
    const run_fn run = answers ? comm_rounds_answer : comm_rounds_run;
    CHECK(start && in);
    for (int to = 0; to < size; to++) {
        uint64_t bytes = answers ? bytes_of(round, to, own) : bytes_of(round, own, to);
        for (uint64_t i = 0; i < bytes; i++) *out++ = pattern(round, own, to, i);
    }
    CHECK(run(r, round, start, in, NULL) == DCP_OK);
    const unsigned char *at = in;
    for (int from = 0; from < size; from++) {
        uint64_t bytes = answers ? bytes_of(round, own, from) : bytes_of(round, from, own);
        for (uint64_t i = 0; i < bytes; i++) CHECK(*at++ == pattern(round, from, own, i));
    }
    free(start);
    free(in);
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
        run_round(&r, round, 0);
        run_round(&r, round, 1);
    }
    comm_rounds_free(&r);
    dcp_comm_destroy(comm);
    MPI_Finalize();
    return 0;
}
