/* Hybrid sharding over NCCL, on its stand-in (streams.h): see reduce_ways.h. Each group of ranks is
 * a host, and NCCL itself counts what it sends between hosts: that of a hierarchical collective. */
#include <stdio.h>

#include "fsdp/transport.h"
#include "reduce_ways.h"
#include "streams.h"
#include "streams_sums.h"
#include "support/check.h"

static void reduce_on_hosts(int rank, int world, int hosts, kernels *k) {
    fsdp_mesh mesh;
    fsdp_transport transport;
    fsdp_mesh_create(MPI_COMM_WORLD, hosts, &mesh);
    streams_n_comms = 3;
    streams_comms[0] = mesh.world;
    streams_comms[1] = mesh.shards;
    streams_comms[2] = mesh.replicas;
    CHECK(fsdp_transport_nccl(&mesh, k, 0, 1, &transport) == 0);
    streams_host_ranks = world / hosts;
    reduce_in_groups(rank, world, hosts, &transport, k, &streams_between_hosts);
    streams_host_ranks = 0;
    transport.destroy(&transport);
    fsdp_mesh_free(&mesh);
}

int main(int argc, char **argv) {
    char device[32];
    int rank, world;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    snprintf(device, sizeof device, "0000:%02x:00.0", (unsigned)rank);
    kernels k = streams_sums_kernels(device);
    streams_version = 22000;
    for (int hosts = 2; hosts < world; hosts++)
        if (world % hosts == 0) reduce_on_hosts(rank, world, hosts, &k);
    MPI_Finalize();
    return 0;
}
