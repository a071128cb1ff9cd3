#include "store/host_names.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/comm.h"
#include "comm/topology.h"
#include "core/fail.h"

/* As somebody has named it (comm/place.h), or as the system calls it. */
static void own_name(const dcp_comm *comm, char name[STORE_HOST_NAME]) {
    static const char named[] = "host ";
    const size_t n = sizeof named - 1;
    memset(name, 0, STORE_HOST_NAME);
    if (strncmp(comm->place.host, named, n) == 0)
        memcpy(name, comm->place.host + n, strnlen(comm->place.host + n, STORE_HOST_NAME - 1));
    else
        gethostname(name, STORE_HOST_NAME - 1);
}

int store_host_names_find(dcp_store *store, dcp_error *err) {
    dcp_comm *comm = store->comm;
    const comm_groups *hosts;
    char name[STORE_HOST_NAME];
    const size_t bytes = (size_t)comm->size * sizeof name;
    int status = comm_hosts(comm, &hosts, err);
    if (status) return status;
    store->hosts = hosts->n;
    if (comm->rank == 0 && !(store->host_names = malloc(bytes)))
        status = core_fail_memory(err, bytes);
    status = comm_agree(comm, status, err);
    if (status) return status;
    own_name(comm, name);
    return comm_gather(comm, name, sizeof name, store->host_names, 0, err);
}

const char *store_host_names_of(const dcp_store *store, int rank) {
    return store->host_names ? store->host_names + (size_t)rank * STORE_HOST_NAME : "";
}
