/* MPI only where a launcher's variables are set: MPI_Init takes a quarter of a second, and fails
 * on login nodes. */
#include "common/launch.h"

#include <mpi.h>
#include <signal.h>

#include <dcp/mpi.h>

#include "programs/program.h"

static volatile sig_atomic_t caught; /* a handler has no other way to tell */

static void catch_signal(int number) { caught = number; }

void launch_catch_signals(void) {
    struct sigaction action = {.sa_handler = catch_signal, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
}

int launch_is_stopped(void *ctx) {
    (void)ctx;
    return caught != 0;
}

int launch_check_stopped(void) {
    if (!caught) return 0;
    return program_fail(PROGRAM_FAILED, "stopped by a signal: nothing is left behind");
}

int launch_exit_status(int exit_status) {
    return exit_status == PROGRAM_FAILED && caught == SIGTERM ? PROGRAM_STOPPED : exit_status;
}

int launch_start(launch *job) {
    dcp_error err = {0};
    *job = (launch){.size = 1};
    if (!program_is_launched()) return dcp_comm_self(&job->comm, &err) ? program_report(&err) : 0;
    int level; /* saves in flight have a thread of their own */
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level) != MPI_SUCCESS)
        return program_fail(PROGRAM_FAILED, "MPI_Init failed: start the program alone, or with the "
                                            "mpirun of the MPI that it was built with");
    job->mpi = 1;
    if (dcp_comm_from_mpi(MPI_COMM_WORLD, &job->comm, &err)) return program_report(&err);
    job->rank = dcp_comm_rank(job->comm);
    job->size = dcp_comm_size(job->comm);
    return 0;
}

void launch_end(launch *job) {
    dcp_comm_destroy(job->comm);
    if (job->mpi) MPI_Finalize();
}

int launch_worst(const launch *job, int exit_status) {
    if (job->mpi) MPI_Allreduce(MPI_IN_PLACE, &exit_status, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return exit_status;
}

void launch_broadcast(const launch *job, void *buf, int bytes) {
    if (job->mpi) MPI_Bcast(buf, bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
}

void launch_collect(const launch *job, void *buf, uint64_t bytes) {
    enum { PART = 1 << 26 };
    char *at = buf;
    for (uint64_t n; job->mpi && bytes; bytes -= n, at += n) {
        n = bytes < PART ? bytes : PART;
        MPI_Reduce(job->rank ? at : MPI_IN_PLACE, at, (int)n, MPI_BYTE, MPI_BOR, 0, MPI_COMM_WORLD);
    }
}

void launch_sum(const launch *job, uint64_t *buf, int n) {
    if (!job->mpi) return;
    MPI_Reduce(job->rank ? buf : MPI_IN_PLACE, buf, n, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
}
