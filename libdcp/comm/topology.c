#include "comm/topology.h"

#include <string.h>

#include "comm/comm.h"
#include "core/crc64.h"
#include "core/fail.h"

/* Equal on the ranks of one host, and of no others as far as 64 bits can tell. */
static uint64_t own_key(const dcp_comm *comm) {
    struct {
        comm_place named, machine;
    } both;
    both.named = comm->place;
    comm_place_machine(&both.machine);
    return core_crc64(&both, sizeof both);
}

int comm_hosts(dcp_comm *comm, const comm_groups **out, dcp_error *err) {
    const size_t ranks = (size_t)comm->size;
    *out = comm->hosts;
    if (comm->hosts) return DCP_OK;
    uint64_t *keys = comm->numbers;
    comm_groups *hosts = comm_groups_room(comm->size);
    memset(keys, 0, ranks * sizeof *keys);
    keys[comm->rank] = own_key(comm);
    int status = hosts ? DCP_OK : core_fail_memory(err, sizeof *hosts + 3 * ranks * sizeof(int));
    status = comm_agree_xor(comm, status, keys, ranks, err);
    if (status) {
        comm_groups_release(hosts);
        return status;
    }
    comm_groups_fill(hosts, comm->rank, comm->size, keys);
    *out = comm->hosts = hosts;
    return DCP_OK;
}
