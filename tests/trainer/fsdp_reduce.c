/* Reductions by MPI, in groups of all sizes: see reduce_ways.h. */
#include "fsdp/transport.h"
#include "reduce_ways.h"
#include "support/check.h"

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, world;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    kernels *k;
    CHECK(kernels_open("cpu", &k) == KERNELS_OK);
    for (int replicas = 1; replicas <= world; replicas++) {
        fsdp_mesh mesh;
        if (world % replicas != 0) continue;
        fsdp_mesh_create(MPI_COMM_WORLD, replicas, &mesh);
        const fsdp_transport transport = fsdp_transport_mpi(&mesh);
        reduce_in_groups(rank, world, replicas, &transport, k, NULL);
        fsdp_mesh_free(&mesh);
    }
    kernels_close(k);
    MPI_Finalize();
    return 0;
}
