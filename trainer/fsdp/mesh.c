#include "mesh.h"

void fsdp_mesh_create(MPI_Comm world, int n_replicas, fsdp_mesh *out) {
    int rank, size;
    MPI_Comm_rank(world, &rank);
    MPI_Comm_size(world, &size);
    const int row = size / n_replicas;
    out->world = world;
    MPI_Comm_split(world, rank / row, rank, &out->shards);
    MPI_Comm_split(world, rank % row, rank, &out->replicas);
}

void fsdp_mesh_free(fsdp_mesh *mesh) {
    if (!mesh->world) return;
    MPI_Comm_free(&mesh->shards);
    MPI_Comm_free(&mesh->replicas);
    *mesh = (fsdp_mesh){0};
}
