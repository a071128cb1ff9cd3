/* Neither ncclCommAbort nor MPI_Abort is known to return, so that an alarm stands behind them. */
#include "fsdp/nccl_wait.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { FAILED = 3 };
static const double patience_s = 300; /* a peer may compute that much longer */
static const unsigned farewell_s = 20;

static void leave(int signal) {
    (void)signal;
    _exit(FAILED);
}

/* Whether the group has a communicator, and one of its own. */
static int has_own(const nccl_transport *n, fsdp_group group) {
    const ncclComm_t comm = n->groups[group].comm;
    return comm && (group == FSDP_WORLD || comm != n->groups[FSDP_WORLD].comm);
}

void nccl_abort(nccl_transport *n) {
    for (int g = 0; g < NCCL_GROUPS; g++)
        if (has_own(n, (fsdp_group)g)) n->nccl.abort(n->groups[g].comm);
}

void nccl_fail(nccl_transport *n, const char *what, const char *why) {
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    fprintf(stderr, "dcp-train: rank %d: NCCL: %s: %s\n", rank, what, why);
    signal(SIGALRM, leave);
    alarm(farewell_s);
    nccl_abort(n);
    MPI_Abort(MPI_COMM_WORLD, FAILED);
    exit(FAILED);
}

void nccl_check_cuda(nccl_transport *n, cudaError_t code) {
    if (code != cudaSuccess) nccl_fail(n, "CUDA", cudaGetErrorString(code));
}

void nccl_check(nccl_transport *n, ncclResult_t result) {
    if (result != ncclSuccess && result != ncclInProgress)
        nccl_fail(n, "a call failed", n->nccl.error_text(result));
}

static void check_comm(nccl_transport *n, fsdp_group group, ncclResult_t *state) {
    nccl_check(n, n->nccl.async_error(n->groups[group].comm, state));
    nccl_check(n, *state);
}

static void doze(nccl_transport *n, double since) {
    const struct timespec moment = {.tv_nsec = 20000};
    if (MPI_Wtime() - since > patience_s) nccl_fail(n, "a rank does not answer", "time-out");
    nanosleep(&moment, NULL);
}

void nccl_settle(nccl_transport *n, fsdp_group group) {
    const double since = MPI_Wtime();
    ncclResult_t state;
    for (check_comm(n, group, &state); state == ncclInProgress; check_comm(n, group, &state))
        doze(n, since);
}

/* All transfers are on one stream, so that this one may stand behind another group's. */
void nccl_wait(nccl_transport *n, const nccl_flight *f) {
    const double since = MPI_Wtime();
    cudaError_t code;
    while ((code = cudaEventQuery(f->done)) == cudaErrorNotReady) {
        ncclResult_t state;
        for (int g = 0; g < NCCL_GROUPS; g++)
            if (has_own(n, (fsdp_group)g)) check_comm(n, (fsdp_group)g, &state);
        doze(n, since);
    }
    nccl_check_cuda(n, code);
}
