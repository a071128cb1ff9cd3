#include "programs/launched.h"

const program_launcher program_launchers[PROGRAM_LAUNCHERS] = {
    [PROGRAM_BY_OPEN_MPI] = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                             "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    [PROGRAM_BY_PMI] = {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    [PROGRAM_BY_PMIX] = {.rank = "PMIX_RANK"},
    [PROGRAM_BY_SLURM] = {.rank = "SLURM_PROCID", .size = "SLURM_STEP_NUM_TASKS"},
    [PROGRAM_BY_TORCHRUN] = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
};
