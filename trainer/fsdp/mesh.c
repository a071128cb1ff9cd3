#include "fsdp/mesh.h"

#include <stdio.h>
#include <string.h>

void fsdp_mesh_create(MPI_Comm world, int n_replicas, fsdp_mesh *out) {
    int rank, size;
    MPI_Comm_rank(world, &rank);
    MPI_Comm_size(world, &size);
    const int row = size / n_replicas;
    out->world = world;
    MPI_Comm_split(world, rank / row, rank, &out->shards);
    MPI_Comm_split(world, rank % row, rank, &out->replicas);
}

MPI_Comm fsdp_mesh_comm(const fsdp_mesh *mesh, fsdp_group group) {
    const MPI_Comm comms[] = {
        [FSDP_WORLD] = mesh->world, [FSDP_SHARDS] = mesh->shards, [FSDP_REPLICAS] = mesh->replicas};
    return comms[group];
}

/* Processes may number devices differently, so names are compared. The first rank that has the
 * device represents it. */
void fsdp_mesh_sharers(MPI_Comm world, const char *device, MPI_Comm *out) {
    MPI_Comm host;
    int rank, ranks;
    MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_rank(host, &rank);
    MPI_Comm_size(host, &ranks);
    int first = rank;
    for (int i = 0; i < ranks; i++) {
        char name[32] = "";
        if (i == rank) snprintf(name, sizeof name, "%s", device);
        MPI_Bcast(name, (int)sizeof name, MPI_CHAR, i, host);
        if (i < first && strcmp(name, device) == 0) first = i;
    }
    MPI_Comm_split(host, first, rank, out);
    MPI_Comm_free(&host);
}

void fsdp_mesh_free(fsdp_mesh *mesh) {
    if (!mesh->world) return;
    MPI_Comm_free(&mesh->shards);
    MPI_Comm_free(&mesh->replicas);
    *mesh = (fsdp_mesh){0};
}
