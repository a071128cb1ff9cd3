#include "comm/sharing.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/comm.h"
#include "comm/host.h"
#include "core/bytes.h"
#include "core/fail.h"
#include "dcp/mpi.h"

/* A rank that finds the communicator broken does not begin the collective. Another rank may still
 * wait for it in an earlier collective. That rank would mistake the beginning of this collective
 * for the arrival that it waits for. */
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

static bool have_room(const comm_areas *a, size_t n, const size_t *bytes) {
    if (n > a->n) return false;
    for (size_t i = 0; i < n; i++)
        if (bytes[i] > a->bytes[i]) return false;
    return true;
}

/* Makes lists for n areas, and adds up the memory that they need. Returns -1 if memory is short. */
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

/* All marks come first, then the areas. */
static void find_areas(comm_areas *a) {
    unsigned char *at = a->memory;
    for (size_t i = 0; i < a->n; i++) {
        a->marks[i] = (_Atomic uint16_t *)at;
        at += core_round_to_pages(a->bytes[i] / PAGE_BYTES * sizeof **a->marks);
    }
    for (size_t i = 0; i < a->n; at += a->bytes[i++]) a->data[i] = at;
}

/* All ranks map the file of the group's first rank. If one rank fails, all do. */
static int share_areas(dcp_comm *comm, comm_areas *a, bool listed, dcp_error *err) {
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
    if (fd >= 0) close(fd); /* all ranks have opened it */
    if (!status && lacking) status = core_fail_memory(err, a->memory_bytes);
    return status;
}

int comm_local_areas(dcp_comm *comm, size_t n, const size_t *bytes, const comm_areas **out,
                     dcp_error *err) {
    comm_areas *a = &comm->local.areas;
    *out = a;
    if (have_room(a, n, bytes)) return DCP_OK;
    comm_areas_free(a);
    const bool listed = list_areas(a, n, bytes) == 0;
    int status = share_areas(comm, a, listed, err);
    if (status)
        comm_areas_free(a);
    else
        find_areas(a);
    return status;
}

/* The first rank of a host makes memory, and the others open it. All ranks learn on which hosts
 * this succeeded, so each rank knows all sharing groups. */

#ifndef SLOT_BYTES /* tests set a small value */
#define SLOT_BYTES ((size_t)256 << 10)
#endif

static bool may_share(void) {
    const char *word = getenv("DCP_SHARED_MEMORY");
    return !word || strcmp(word, "0") != 0;
}

/* The size of a rank's memory: a page with its round, and two slots. */
static size_t rank_bytes(const comm_host *host) {
    return PAGE_BYTES + core_round_to_pages(2 * host->slot_bytes);
}

static size_t all_bytes(const comm_host *host) { return (size_t)host->size * rank_bytes(host); }

static void find_parts(comm_host *host) {
    unsigned char *at = host->memory;
    for (int r = 0; r < host->size; r++, at += rank_bytes(host)) host->rounds[r] = (core_futex *)at;
}

static bool make_lists(comm_host *host, const comm_groups *hosts) {
    const size_t ranks = (size_t)host->size;
    host->rounds = calloc(ranks, sizeof *host->rounds);
    host->begins = calloc(ranks, sizeof *host->begins);
    host->ranks = calloc(ranks, sizeof *host->ranks);
    for (int i = 0; i < host->size && host->ranks; i++)
        host->ranks[i] = comm_groups_rank(hosts, hosts->own, i);
    return host->rounds && host->begins && host->ranks;
}

/* The failure and the cancelled operation lie in the first page, away from the first rank's round
 * number, which other ranks poll. */
static _Atomic comm_failure *failure_in(unsigned char *memory) {
    return (_Atomic comm_failure *)(memory + PAGE_BYTES / 2);
}

static _Atomic uint64_t *stopped_in(unsigned char *memory) {
    return (_Atomic uint64_t *)(memory + PAGE_BYTES / 4 * 3);
}

/* Uses the host's memory for the whole communicator: all its ranks are on the host. */
static void use_for_all(dcp_comm *comm, comm_mpi *ctx) {
    comm_host *host = &ctx->host;
    comm_watch *watch = ctx->pairs.watch;
    host->failure = failure_in(host->memory);
    if (!watch->shared) watch->shared = host->failure; /* the same one for all duplicates */
    host->shared.stopped = stopped_in(host->memory);
    comm->ops = comm_host_ops;
    comm->shared = &host->shared;
}

static void free_memory(comm_host *host) {
    dcp_host_memory_free(host->memory, all_bytes(host));
    host->memory = NULL;
}

static void free_host(comm_host *host) {
    free_memory(host);
    free(host->rounds);
    free(host->begins);
    free(host->ranks);
    *host = (comm_host){0};
}

/* The first rank of each host sends the file's identification to the host's other ranks, by
 * messages. Returns nonzero once the watch is broken. */
static int send_file_id(comm_mpi *ctx, comm_memory_file *file) {
    const comm_host *host = &ctx->host;
    comm_batch b = {.pairs = &ctx->pairs};
    int failed = 0;
    if (host->rank > 0) comm_batch_receive(&b, file, sizeof *file, host->ranks[0]);
    for (int i = 1; i < host->size && host->rank == 0 && !failed; i++) {
        comm_batch_send(&b, file, sizeof *file, host->ranks[i]);
        if (b.n == COMM_BATCH_PEERS) failed = comm_batch_finish(&b);
    }
    return failed ? failed : comm_batch_finish(&b);
}

/* Collective: makes the memory of this rank's host. For each host h, have[h] becomes 1 if all ranks
 * of the host can use its memory, or if the host has only one rank; otherwise 0. */
static int make_memory(dcp_comm *comm, uint64_t *have, dcp_error *err) {
    comm_mpi *ctx = comm->ctx;
    comm_host *host = &ctx->host;
    const comm_groups *hosts = comm->hosts;
    comm_memory_file file = {.fd = -1};
    int fd = -1;
    if (host->rank == 0 && host->size > 1) fd = comm_memory_file_make(all_bytes(host), &file);
    int status =
        send_file_id(ctx, &file) ? comm_fail_broken(comm, "joining of a host", err) : DCP_OK;
    if (!status && host->rank > 0) fd = comm_memory_file_open(&file);
    if (!status && fd >= 0) host->memory = comm_memory_file_map(fd, all_bytes(host));
    for (int i = 0; i < hosts->n; i++) have[i] = 1;
    have[hosts->own] = host->memory || host->size == 1;
    if (!status) status = comm_allreduce(comm, have, (uint64_t)hosts->n, DCP_REDUCE_MIN, err);
    if (fd >= 0) close(fd); /* all ranks have opened it */
    return status;
}

/* Makes the sharing groups: each host whose ranks can share memory is a group, and each rank of the
 * other hosts is a group of its own. Returns NULL if memory is short. keys[size] is scratch
 * memory. */
static comm_groups *sharing_groups(const dcp_comm *comm, const uint64_t *have, uint64_t *keys) {
    comm_groups *hosts = comm->hosts;
    bool all = true;
    for (int i = 0; i < hosts->n; i++) all = all && have[i];
    if (all) return comm_groups_share(hosts);
    for (int r = 0; r < comm->size; r++)
        keys[r] = (uint64_t)(have[hosts->of[r]] ? hosts->of[r] : hosts->n + r);
    return comm_groups_make(comm->rank, comm->size, keys);
}

/* Collective. room[2 * ranks] is scratch memory. */
static int share_memory(dcp_comm *comm, uint64_t *room, dcp_error *err) {
    comm_mpi *ctx = comm->ctx;
    const comm_groups *hosts = comm->hosts;
    int status = make_memory(comm, room, err);
    if (status) return status;
    comm_groups *groups = sharing_groups(comm, room, room + hosts->n);
    const bool ready = groups && (groups->n == 1 || comm_levels_make(ctx, groups) == 0);
    status = comm_agree(comm, ready ? DCP_OK : core_fail_memory(err, 0), err);
    if (status) {
        comm_groups_release(groups);
        return status;
    }
    if (!room[hosts->own]) free_memory(&ctx->host);
    if (ctx->host.memory) find_parts(&ctx->host);
    comm_local_set(&comm->local, groups, &comm_host_ops, ctx);
    if (groups->n > 1 && groups->n < comm->size) comm->ops = comm_levels_ops;
    if (groups->n == 1) use_for_all(comm, ctx);
    return DCP_OK;
}

/* Collective: makes the ranks of each host share memory, unless a rank must not share memory or
 * lacks the memory for its lists. */
static int join_host(dcp_comm *comm, const comm_groups *hosts, dcp_error *err) {
    comm_mpi *ctx = comm->ctx;
    comm_host *host = &ctx->host;
    uint64_t *room = calloc(2 * (size_t)comm->size, sizeof *room);
    *host = (comm_host){.slot_bytes = SLOT_BYTES, .size = comm_groups_size(hosts, hosts->own)};
    uint64_t may = make_lists(host, hosts) && room && may_share();
    while (may && host->ranks[host->rank] != comm->rank) host->rank++;
    int status = comm_allreduce(comm, &may, 1, DCP_REDUCE_MIN, err);
    if (!status && may) status = share_memory(comm, room, err);
    free(room);
    return status;
}

int comm_host_join(dcp_comm *comm, dcp_error *err) {
    comm_mpi *ctx = comm->ctx;
    const comm_groups *hosts;
    if (comm->size == 1) return DCP_OK;
    int status = comm_hosts(comm, &hosts, err);
    if (status || (size_t)comm_groups_largest(hosts) > SLOT_BYTES / sizeof(uint64_t))
        return status; /* meet_sizes has no room for more */
    status = join_host(comm, hosts, err);
    if (status || !ctx->host.memory) free_host(&ctx->host);
    return status;
}

void comm_host_leave(dcp_comm *comm) {
    comm_mpi *ctx = comm->ctx;
    if (comm->size > 1) comm->ops = comm_pairs_ops;
    comm->shared = NULL;
    comm_local_set(&comm->local, NULL, NULL, NULL);
    if (ctx->host.failure && ctx->pairs.watch->shared == ctx->host.failure) {
        comm_watch_failure(ctx->pairs.watch); /* copies the failure from the shared memory */
        ctx->pairs.watch->shared = NULL;
    }
    free_host(&ctx->host);
    free(ctx->first);
    ctx->first = NULL;
}

int comm_host_update(dcp_comm *comm, dcp_error *err) {
    int status = comm_barrier(comm, err); /* no rank uses the memory any more */
    if (status) return status;
    comm_host_leave(comm);
    return comm_host_join(comm, err);
}
