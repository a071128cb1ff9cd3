/* comm_agree: all ranks get the status, message and members of the lowest rank that failed, and
 * continue. The communicator may be one from Fortran. */
#include <errno.h>
#include <string.h>

#include "comm/comm.h"
#include "core/fail.h"
#include "dcp/mpi.h"
#include "support/check.h"

static int fails(int rank, unsigned failing) { return (failing >> rank & 1) != 0; }

static int lowest(unsigned failing) { return __builtin_ctz(failing); }

/* Checks the members of the rank that failed first. */
static void check_members(const dcp_error *err, int first) {
    CHECK(!strcmp(err->path, "/the/path") && !strcmp(err->tensor, "/model/a@1"));
    CHECK(err->offset == 4096 + (uint64_t)first && err->system_error == ENOSPC);
    CHECK(err->n_ranks == DCP_ERROR_RANKS + 2);
    for (int r = 0; r < DCP_ERROR_RANKS; r++) CHECK(err->ranks[r] == 7 * r + first);
}

enum { PLAIN, LEAST, XOR, WAYS };

/* Runs each of the agreements; those that carry values carry them if no rank failed. */
static int agree_by(int way, dcp_comm *comm, int status, dcp_error *err) {
    const uint64_t rank = (uint64_t)dcp_comm_rank(comm), size = (uint64_t)dcp_comm_size(comm);
    uint64_t words[3 + COMM_XOR_ROOM(64)] = {7, rank, ~rank}, all = 0;
    if (way == PLAIN) return comm_agree(comm, status, err);
    if (way == LEAST) {
        const int agreed = comm_agree_least(comm, status, words, 3, err);
        if (!agreed) CHECK(words[0] == 7 && words[1] == 0 && words[2] == ~(size - 1));
        return agreed;
    }
    words[0] = 1ULL << rank;
    const int agreed = comm_agree_xor(comm, status, words, 2, err);
    for (uint64_t r = 0; r < size; r++) all ^= r;
    if (!agreed) CHECK(words[0] == (1ULL << size) - 1 && words[1] == all);
    return agreed;
}

static void check_agreement(dcp_comm *comm, unsigned failing, int way) {
    int rank = dcp_comm_rank(comm);
    dcp_error err = {.status = DCP_OK, .rank = -7, .message = "untouched"};
    int status = DCP_OK;
    if (fails(rank, failing)) {
        status = core_fail(&err, DCP_ERR_IO - rank, "disk of %d", rank);
        core_fail_path(status, "/the/path", &err);
        core_fail_tensor(status, "/model/a@1", &err);
        core_fail_offset(status, 4096 + (uint64_t)rank, &err);
        for (int r = 0; r < DCP_ERROR_RANKS + 2; r++) core_fail_rank(status, 7 * r + rank, &err);
        err.system_error = ENOSPC;
    }
    int agreed = agree_by(way, comm, status, &err);
    if (failing == 0) {
        CHECK(agreed == DCP_OK && err.rank == -7 && strcmp(err.message, "untouched") == 0);
        return;
    }
    int first = lowest(failing);
    char expected[64];
    if (dcp_comm_size(comm) > 1)
        snprintf(expected, sizeof expected, "rank %d: disk of %d", first, first);
    else
        snprintf(expected, sizeof expected, "disk of 0");
    CHECK(agreed == DCP_ERR_IO - first && err.status == agreed && err.rank == first);
    CHECK(strcmp(err.message, expected) == 0);
    check_members(&err, first);

    CHECK(agree_by(way, comm, agreed, &err) == agreed); /* an agreed error is passed on unchanged */
    CHECK(err.rank == first && strcmp(err.message, expected) == 0);
    check_members(&err, first);
}

static void check_without_error_objects(dcp_comm *comm, unsigned failing) {
    int status = fails(dcp_comm_rank(comm), failing) ? DCP_ERR_CORRUPT : DCP_OK;
    int last = dcp_comm_rank(comm) == dcp_comm_size(comm) - 1;
    dcp_error err = {0};
    CHECK(comm_agree(comm, status, last ? &err : NULL) == (failing ? DCP_ERR_CORRUPT : DCP_OK));
    if (last && failing) CHECK(strstr(err.message, dcp_status_text(DCP_ERR_CORRUPT)));
}

static void check_all(dcp_comm *comm) {
    for (unsigned failing = 0; failing < 1u << dcp_comm_size(comm); failing++) {
        for (int way = PLAIN; way < WAYS; way++) check_agreement(comm, failing, way);
        check_without_error_objects(comm, failing);
    }
    dcp_comm_destroy(comm);
}

/* What Fortran would pass, for the ranks in reverse order. */
static void check_fortran(void) {
    dcp_comm *comm = NULL;
    dcp_error err = {0};
    MPI_Comm reverse;
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &reverse);
    CHECK(dcp_comm_from_fortran(MPI_Comm_c2f(reverse), &comm, NULL) == DCP_OK);
    CHECK(dcp_comm_rank(comm) == size - 1 - rank && dcp_comm_size(comm) == size);
    check_all(comm);
    MPI_Comm_free(&reverse);

    comm = NULL;
    CHECK(dcp_comm_from_fortran(MPI_Comm_c2f(MPI_COMM_NULL), &comm, &err) == DCP_ERR_ARG);
    CHECK(strstr(err.message, "is no communicator of MPI in Fortran"));
#ifdef OPEN_MPI /* others end the process for an invalid number */
    CHECK(dcp_comm_from_fortran(1 << 30, &comm, &err) == DCP_ERR_ARG && !comm);
#endif
    CHECK(dcp_comm_from_fortran(MPI_Comm_c2f(MPI_COMM_WORLD), NULL, &err) == DCP_ERR_ARG);
}

int main(int argc, char **argv) {
    dcp_comm *comm = NULL;
    CHECK(dcp_comm_from_fortran(0, &comm, NULL) == DCP_ERR_STATE && !comm);
    MPI_Init(&argc, &argv);
    CHECK(dcp_comm_from_mpi(MPI_COMM_WORLD, &comm, NULL) == DCP_OK);
    check_all(comm);
    check_fortran();
    MPI_Finalize();
    return 0;
}
