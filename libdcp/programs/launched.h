/* What a launcher tells each process that it starts, by variables of its environment. */
#pragma once

typedef struct program_launcher {
    const char *rank, *size;             /* of all processes; size NULL: not told */
    const char *local_rank, *local_size; /* of those on the same host; NULL: not told */
} program_launcher;

/* By mpirun of Open MPI; by mpirun of MPICH and others that speak PMI; by srun --mpi=pmix; by any
 * srun; by torchrun. Where several are set, the first one counts. */
enum {
    PROGRAM_BY_OPEN_MPI,
    PROGRAM_BY_PMI,
    PROGRAM_BY_PMIX,
    PROGRAM_BY_SLURM,
    PROGRAM_BY_TORCHRUN,
    PROGRAM_LAUNCHERS
};
extern const program_launcher program_launchers[PROGRAM_LAUNCHERS];
