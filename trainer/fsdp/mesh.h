/* The ranks as a matrix. A row is a group that holds the state once; a column consists of the ranks
 * that hold the same shard. Rank = row * (ranks per row) + column. */
#pragma once

#include <mpi.h>

typedef enum fsdp_group { FSDP_WORLD, FSDP_SHARDS, FSDP_REPLICAS } fsdp_group;

typedef struct fsdp_mesh {
    MPI_Comm world;    /* borrowed */
    MPI_Comm shards;   /* this rank's row; a rank's number in it is the number of its shard */
    MPI_Comm replicas; /* this rank's column */
} fsdp_mesh;

/* Collective. n_replicas divides the size of `world`. */
void fsdp_mesh_create(MPI_Comm world, int n_replicas, fsdp_mesh *out);
/* The communicator of a group: all ranks, this rank's row, or its column. Borrowed. */
MPI_Comm fsdp_mesh_comm(const fsdp_mesh *mesh, fsdp_group group);
/* Collective. Creates a communicator of the ranks on this rank's host that share its device, in the
 * order of ranks. device: identifies the host's device, as the kernels' `device` reports it. The
 * caller frees *out. */
void fsdp_mesh_sharers(MPI_Comm world, const char *device, MPI_Comm *out);
/* Collective. A zeroed mesh is ignored. */
void fsdp_mesh_free(fsdp_mesh *mesh);
