/* comm_agree: all ranks get the status, message and members of the lowest rank that failed, and
 * continue. The communicator may be one from Fortran. */
#include <errno.h>
#include <string.h>

#include "comm/vote.h"
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

enum { PLAIN, LEAST, XOR, VOTE, WAYS };

/* A vote with a value of each kind. */
static int vote_on_all(dcp_comm *comm, int status, dcp_error *err) {
    const uint64_t rank = (uint64_t)dcp_comm_rank(comm), size = (uint64_t)dcp_comm_size(comm);
    const bool is_last = rank == size - 1;
    uint64_t low[2] = {rank + 3, 9}, high[2] = {rank, 5}, from = is_last ? 77 : 1, even = 4;
    uint64_t differs = rank, rest = rank ? 8 : 0;
    bool any = is_last, none = false, all = true, some = !is_last;
    bool even_is_same = false, differs_is_same = true, rest_is_same = false;
    comm_vote v = {0};
    comm_vote_same(&v, "the same", 12);
    comm_vote_same_hash(&v, "the hash", UINT64_MAX);
    comm_vote_min(&v, low, 2);
    comm_vote_max(&v, high, 2);
    comm_vote_from(&v, is_last, &from, 1);
    comm_vote_any(&v, &any);
    comm_vote_any(&v, &none);
    comm_vote_all(&v, &all);
    comm_vote_all(&v, &some);
    comm_vote_equal(&v, true, &even, &even_is_same);
    comm_vote_equal(&v, true, &differs, &differs_is_same);
    comm_vote_equal(&v, rank > 0 || size == 1, &rest, &rest_is_same);
    const int agreed = comm_vote_run(comm, &v, status, err);
    if (agreed) {
        CHECK(low[0] == rank + 3 && high[0] == rank && !even_is_same); /* unchanged */
        return agreed;
    }
    CHECK(low[0] == 3 && low[1] == 9 && high[0] == size - 1 && high[1] == 5 && from == 77);
    CHECK(any && !none && all && !some);
    CHECK(even == 4 && even_is_same && differs == 0 && differs_is_same == (size == 1));
    CHECK(rest == (size == 1 ? 0 : 8) && rest_is_same);
    return agreed;
}

/* A value that differs is named, by the run or, behind a split, by the check. */
static void check_difference(dcp_comm *comm) {
    const uint64_t rank = (uint64_t)dcp_comm_rank(comm);
    dcp_error err = {0};
    if (dcp_comm_size(comm) == 1) return;
    for (int splits = 0; splits < 2; splits++) {
        comm_vote v = {0};
        uint64_t low = rank + 1;
        comm_vote_same(&v, "one thing", 3);
        if (splits) comm_vote_split(&v);
        comm_vote_same(&v, "the other", rank == 0);
        comm_vote_min(&v, &low, 1);
        int status = comm_vote_run(comm, &v, DCP_OK, &err);
        CHECK(low == 1 && (status == DCP_OK) == (splits == 1));
        if (!status) status = comm_vote_check(comm, &v, &err);
        CHECK(status == DCP_ERR_MISMATCH && err.rank == 1);
        CHECK(strstr(err.message, "different values for the other: 1 on rank 0, 0 on rank"));
    }
}

/* Too many values are refused before any collective. */
static void check_room(dcp_comm *comm) {
    comm_vote v = {0};
    uint64_t values[COMM_MIN_VALUES + 1] = {0};
    comm_vote_min(&v, values, COMM_MIN_VALUES + 1);
    CHECK(comm_vote_run(comm, &v, DCP_OK, NULL) == DCP_ERR_STATE);
    v = (comm_vote){0};
    for (int i = 0; i <= COMM_VOTES; i++) comm_vote_same(&v, "a value", 1);
    CHECK(comm_vote_run(comm, &v, DCP_OK, NULL) == DCP_ERR_STATE);
}

/* Runs each of the agreements; those that carry values carry them if no rank failed. */
static int agree_by(int way, dcp_comm *comm, int status, dcp_error *err) {
    const uint64_t rank = (uint64_t)dcp_comm_rank(comm), size = (uint64_t)dcp_comm_size(comm);
    uint64_t words[3 + COMM_XOR_SCRATCH(64)] = {7, rank, ~rank}, all = 0;
    if (way == PLAIN) return comm_agree(comm, status, err);
    if (way == LEAST) {
        const int agreed = comm_agree_min(comm, status, words, 3, err);
        if (!agreed) CHECK(words[0] == 7 && words[1] == 0 && words[2] == ~(size - 1));
        return agreed;
    }
    if (way == VOTE) return vote_on_all(comm, status, err);
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
    check_difference(comm);
    check_room(comm);
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
