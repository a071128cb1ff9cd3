#include "comm/sharing.h"

#include <stdlib.h>
#include <unistd.h>

#include "comm/host_memory.h"
#include "core/bytes.h"
#include "core/fail.h"

/* A rank that finds the communicator broken keeps away: another that waits in an earlier collective
 * would take it for one that has come there. */
static int check_group(const dcp_comm *comm, int failed, const char *what, dcp_error *err) {
    if (!failed && !comm_is_broken(comm)) return DCP_OK;
    return comm_fail_broken(comm, what, err);
}

int comm_local_barrier(dcp_comm *comm, dcp_error *err) {
    const comm_local *l = &comm->local;
    const char *what = "barrier of a host";
    int status = check_group(comm, 0, what, err);
    return status ? status : check_group(comm, l->ops && l->ops->barrier(l->ctx), what, err);
}

static int reduce_in_group(dcp_comm *comm, uint64_t *values, size_t n, dcp_reduce op,
                           dcp_error *err) {
    const comm_local *l = &comm->local;
    const char *what = "all-reduce of a host";
    int status = check_group(comm, 0, what, err);
    if (status) return status;
    return check_group(comm, l->ops && n && l->ops->allreduce(l->ctx, values, n, op), what, err);
}

int comm_local_max(dcp_comm *comm, uint64_t *values, size_t n, dcp_error *err) {
    return reduce_in_group(comm, values, n, DCP_REDUCE_MAX, err);
}

int comm_local_sum(dcp_comm *comm, uint64_t *values, size_t n, dcp_error *err) {
    return reduce_in_group(comm, values, n, DCP_REDUCE_SUM, err);
}

static int have_room(const comm_areas *a, size_t n, const size_t *bytes) {
    if (n > a->n) return 0;
    for (size_t i = 0; i < n; i++)
        if (bytes[i] > a->bytes[i]) return 0;
    return 1;
}

/* Lists for n areas, and how much memory they take together. -1: memory is short. */
static int list_areas(comm_areas *a, size_t n, const size_t *bytes) {
    size_t *own = calloc(n, sizeof *own + sizeof *a->data + sizeof *a->marks);
    if (!own) return -1;
    *a = (comm_areas){.n = n, .bytes = own, .lists = own};
    a->data = (unsigned char **)(own + n);
    a->marks = (_Atomic uint16_t **)(a->data + n);
    for (size_t i = 0; i < n; i++) {
        own[i] = core_round_to_pages(bytes[i]);
        a->memory_bytes += core_round_to_pages(own[i] / PAGE_BYTES * sizeof **a->marks) + own[i];
    }
    return 0;
}

/* Marks first, all together, then the areas. */
static void find_areas(comm_areas *a) {
    unsigned char *at = a->memory;
    for (size_t i = 0; i < a->n; i++) {
        a->marks[i] = (_Atomic uint16_t *)at;
        at += core_round_to_pages(a->bytes[i] / PAGE_BYTES * sizeof **a->marks);
    }
    for (size_t i = 0; i < a->n; at += a->bytes[i++]) a->data[i] = at;
}

/* The first rank's file, which all map. A failure of one rank is that of all. */
static int share_areas(dcp_comm *comm, comm_areas *a, int listed, dcp_error *err) {
    const comm_local *l = &comm->local;
    comm_memory_file file = {.fd = -1};
    int fd = -1;
    if (l->rank == 0 && listed) fd = comm_memory_file_make(a->memory_bytes, &file);
    int failed = comm_is_broken(comm);
    if (!failed && l->ops) failed = l->ops->broadcast(l->ctx, &file, sizeof file, 0);
    if (!failed && l->rank > 0 && listed) fd = comm_memory_file_open(&file);
    if (!failed && fd >= 0) a->memory = comm_memory_file_map(fd, a->memory_bytes);
    uint64_t lacking = !a->memory;
    int status = check_group(comm, failed, "broadcast of a host", err);
    if (!status) status = reduce_in_group(comm, &lacking, 1, DCP_REDUCE_MAX, err);
    if (fd >= 0) close(fd); /* all have opened it */
    if (!status && lacking) status = core_fail_memory(err, a->memory_bytes);
    return status;
}

int comm_local_areas(dcp_comm *comm, size_t n, const size_t *bytes, const comm_areas **out,
                     dcp_error *err) {
    comm_areas *a = &comm->local.areas;
    *out = a;
    if (have_room(a, n, bytes)) return DCP_OK;
    comm_areas_free(a);
    const int listed = list_areas(a, n, bytes) == 0;
    int status = share_areas(comm, a, listed, err);
    if (status)
        comm_areas_free(a);
    else
        find_areas(a);
    return status;
}
