/* MPI only where a launcher's variables are set: MPI_Init takes a quarter of a second, and fails
 * on login nodes. */
#include "launch.h"

#include <mpi.h>
#include <stdlib.h>

#include "cli.h"
#include "dcp/mpi.h"

static int under_launcher(void) {
    if (getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMIX_RANK") || getenv("PMI_RANK")) return 1;
    const char *tasks = getenv("SLURM_NTASKS");
    return getenv("SLURM_PROCID") && tasks && atoi(tasks) > 1;
}

int launch_env_rank(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                        "SLURM_PROCID"};
    if (!under_launcher()) return 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i])) return atoi(getenv(names[i]));
    return 0;
}

int launch_start(launch *job) {
    dcp_error err = {0};
    *job = (launch){.size = 1};
    if (!under_launcher()) return dcp_comm_self(&job->comm, &err) ? cli_report(&err) : 0;
    int level; /* saves in flight have a thread of their own */
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level) != MPI_SUCCESS)
        return cli_fail(
            CLI_FAILED,
            "MPI_Init failed: start the program alone, or with the mpirun of the MPI that it "
            "was built with");
    job->mpi = 1;
    if (dcp_comm_from_mpi(MPI_COMM_WORLD, &job->comm, &err)) return cli_report(&err);
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
