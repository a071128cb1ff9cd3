#include "store/domains.h"

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/comm.h"
#include "core/fail.h"
#include "redundancy/groups.h"

/* Writes the host name that the caller chose (comm/process.h), or else the system's host name. */
static void own_name(const dcp_comm *comm, char name[STORE_HOST_NAME]) {
    static const char named[] = "host ";
    const size_t n = sizeof named - 1;
    memset(name, 0, STORE_HOST_NAME);
    if (strncmp(comm->location.host, named, n) == 0)
        memcpy(name, comm->location.host + n,
               strnlen(comm->location.host + n, STORE_HOST_NAME - 1));
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

/* Finding the failure domains: rank 0 compares the names of all ranks, and numbers the domains. */

/* What a rank states about its domain. */
typedef struct domain_claim {
    comm_location location; /* the domain's name, or the host */
    int64_t rank, leader, is_named;
} domain_claim;

static int by_domain(const void *a, const void *b) {
    const domain_claim *x = a, *y = b;
    int order = memcmp(&x->location, &y->location, sizeof x->location);
    return order ? order : (x->rank > y->rank) - (x->rank < y->rank);
}

/* Checks the claims, which must be in the order of ranks. */
static int check_claims(const domain_claim *claims, int n, dcp_error *err) {
    for (int r = 1; r < n; r++) {
        if (claims[r].is_named != claims[0].is_named)
            return core_fail(err, DCP_ERR_ARG,
                             "failure domains: rank %d names its domain, rank %d does not: name it "
                             "on all ranks or on none",
                             claims[0].is_named ? 0 : r, claims[0].is_named ? r : 0);
        if (!comm_location_is_same(&claims[r].location, &claims[claims[r].leader].location))
            return core_fail(err, DCP_ERR_ARG,
                             "failure domains: ranks %d and %d have one directory, which is lost "
                             "as a whole, but name different domains: name one for both, or give "
                             "each a directory of its own",
                             (int)claims[r].leader, r);
    }
    return DCP_OK;
}

/* On rank 0: sets numbers[r] to the lowest rank of rank r's domain, and numbers[n] to the number of
 * domains. */
static void number_domains(domain_claim *claims, int n, uint64_t *numbers) {
    numbers[n] = 0;
    qsort(claims, (size_t)n, sizeof *claims, by_domain);
    for (int i = 0, first = 0; i < n; i++) {
        if (i == 0 || !comm_location_is_same(&claims[i].location, &claims[first].location)) {
            first = i;
            numbers[n]++;
        }
        numbers[claims[i].rank] = (uint64_t)claims[first].rank;
    }
}

static int exchange_claims(dcp_comm *comm, const domain_claim *own, domain_claim *claims,
                           uint64_t *numbers, dcp_error *err) {
    int status = comm_gather(comm, own, sizeof *own, claims, 0, err);
    if (status) return status;
    if (comm->rank == 0) status = check_claims(claims, comm->size, err);
    status = comm_agree(comm, status, err);
    if (status) return status;
    if (comm->rank == 0) number_domains(claims, comm->size, numbers);
    return comm_broadcast(comm, numbers, ((size_t)comm->size + 1) * sizeof *numbers, 0, err);
}

int store_domains_find(dcp_store *store, const char *name, dcp_error *err) {
    dcp_comm *comm = store->comm;
    size_t n = (size_t)comm->size;
    domain_claim own = {comm->location, comm->rank, store->leader, name != NULL};
    domain_claim *claims = comm->rank == 0 ? calloc(n, sizeof *claims) : NULL;
    uint64_t *numbers = calloc(n + 1, sizeof *numbers);
    int status = DCP_OK;
    if (name) comm_location_named(&own.location, name);
    if (name && !*name)
        status = core_fail(err, DCP_ERR_ARG, "domain is \"\": name one, or pass NULL for the host");
    if (!numbers || (comm->rank == 0 && !claims)) status = core_fail_memory(err, n * sizeof own);
    status = comm_agree(comm, status, err);
    if (!status) status = exchange_claims(comm, &own, claims, numbers, err);
    if (!status) {
        store->domain = numbers[comm->rank];
        store->domains = (int)numbers[n];
    }
    free(claims);
    free(numbers);
    return status;
}

int dcp_store_survives(const dcp_store *store) {
    if (!store) return 0;
    if (!store->options.private_dirs) return INT_MAX;
    return store->groups ? store->groups->spec.lost : 0;
}

int store_domains_describe(const dcp_store *store, json_t *about) {
    const char *name = store->options.domain;
    if (!store->options.private_dirs) return 0;
    bool failed = json_object_set_new(about, "survives", json_integer(dcp_store_survives(store))) ||
                  json_object_set_new(about, "domains", json_integer(store->domains)) ||
                  (name && json_object_set_new(about, "domain", json_string(name)));
    return failed ? -1 : 0;
}
