#include "comm/comm.h"

#include <assert.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/crc64.h"
#include "core/fail.h"
#include "core/system.h"
#include "dcp/save.h"

/* Makes this rank a group of its own, for a new communicator. Returns -1 if memory is short. */
static int comm_local_make(comm_local *local, int rank, int size) {
    *local = (comm_local){.own = rank};
    local->alone = comm_groups_make_single(rank, size);
    comm_local_set(local, NULL, NULL, NULL);
    return local->alone ? 0 : -1;
}

void comm_areas_free(comm_areas *areas) {
    if (areas->memory) munmap(areas->memory, areas->memory_bytes);
    free(areas->lists);
    *areas = (comm_areas){0};
}

void comm_local_set(comm_local *local, comm_groups *groups, const struct dcp_comm_ops *ops,
                    void *ctx) {
    comm_areas_free(&local->areas);
    comm_groups_release(local->shared);
    local->shared = groups;
    local->groups = groups ? groups : local->alone;
    local->rank = 0;
    local->size = 1;
    local->ops = NULL;
    if (!local->groups) return; /* memory is short: the communicator is not made */
    const comm_groups *g = local->groups;
    local->ranks = g->ranks + g->first[g->own];
    local->size = comm_groups_size(g, g->own);
    while (local->ranks[local->rank] != local->own) local->rank++;
    local->ops = local->size > 1 ? ops : NULL;
    local->ctx = ctx;
}

static void comm_local_free(comm_local *local) {
    comm_local_set(local, NULL, NULL, NULL);
    comm_groups_release(local->alone);
}

/* The communicator object, and the collectives as the library calls them. A failure becomes
 * DCP_ERR_COMM with one line that names the collective. A collective of zero bytes is skipped;
 * since all ranks pass the same sizes to every collective except comm_alltoall, all of them skip
 * it.
 *
 * comm_agree costs one all-reduce if no rank failed. If a rank failed, the message of the lowest
 * such rank is broadcast. */

/* With one rank, a collective only copies its input, or does nothing, so it needs no launcher and
 * no MPI_Init. */
static int alone_broadcast(void *ctx, void *buf, uint64_t bytes, int root) {
    (void)ctx, (void)buf, (void)bytes, (void)root;
    return 0;
}

static int alone_allreduce(void *ctx, uint64_t *buf, uint64_t count, dcp_reduce op) {
    (void)ctx, (void)buf, (void)count, (void)op;
    return 0;
}

static int alone_gather(void *ctx, const void *send, uint64_t bytes, void *recv, int root) {
    (void)ctx, (void)root;
    if (bytes > 0) memmove(recv, send, bytes);
    return 0;
}

static int alone_alltoall(void *ctx, const void *send, const uint64_t *send_bytes, void *recv,
                          const uint64_t *recv_bytes) {
    (void)recv_bytes;
    return alone_gather(ctx, send, send_bytes[0], recv, 0);
}

static int alone_barrier(void *ctx) {
    (void)ctx;
    return 0;
}

static const dcp_comm_ops alone_ops = {
    .size = sizeof alone_ops,
    .broadcast = alone_broadcast,
    .allreduce = alone_allreduce,
    .gather = alone_gather,
    .alltoall = alone_alltoall,
    .barrier = alone_barrier,
};

dcp_comm *comm_create(const dcp_comm_ops *ops, void *ctx, comm_watch *watch, int rank, int size) {
    const size_t words = 3 * (size_t)size; /* COMM_XOR_SCRATCH is at most `size` */
    dcp_comm *comm = calloc(1, sizeof *comm + words * sizeof *comm->eights);
    if (!comm) {
        comm_watch_release(watch);
        return NULL;
    }
    comm->numbers = comm->eights + size;
    for (int r = 0; r < size; r++) comm->eights[r] = sizeof *comm->eights;
    comm->ops = size == 1 ? alone_ops : *ops;
    comm->ctx = ctx;
    comm->watch = watch;
    comm->rank = rank;
    comm->size = size;
    comm->process = getpid();
    comm->table_host = -1;
    comm_find_location(comm);
    if (comm_local_make(&comm->local, rank, size)) {
        dcp_comm_destroy(comm);
        return NULL;
    }
    return comm;
}

void comm_find_location(dcp_comm *comm) {
    if (comm->table_host < 0)
        comm_location_find(&comm->location);
    else
        comm_location_of_rank(&comm->location, comm->table_host);
}

int dcp_comm_self(dcp_comm **out, dcp_error *err) {
    if (!out) return core_fail(err, DCP_ERR_ARG, "dcp_comm_self: out is NULL");
    dcp_comm *comm = comm_create(NULL, NULL, NULL, 0, 1);
    if (!comm) return core_fail_memory(err, sizeof *comm);
    *out = comm;
    return DCP_OK;
}

int dcp_comm_set_host(dcp_comm *comm, const char *name, dcp_error *err) {
    if (!comm) return core_fail(err, DCP_ERR_ARG, "dcp_comm_set_host: comm is NULL");
    if (name)
        comm_location_named(&comm->location, name);
    else
        comm_find_location(comm);
    comm_groups_release(comm->hosts);
    comm->hosts = NULL;
    return comm->update_location ? comm->update_location(comm, err) : comm_barrier(comm, err);
}

/* Collective: gives every rank the locations of all ranks. The caller frees *out. */
static int gather_locations(dcp_comm *comm, comm_location **out, dcp_error *err) {
    const size_t bytes = (size_t)comm->size * sizeof **out;
    comm_location *locations = malloc(bytes);
    int status = comm_agree(comm, locations ? DCP_OK : core_fail_memory(err, bytes), err);
    if (!status) status = comm_gather(comm, &comm->location, sizeof *locations, locations, 0, err);
    if (!status) status = comm_broadcast(comm, locations, bytes, 0, err);
    if (status)
        free(locations);
    else
        *out = locations;
    return status;
}

int dcp_comm_hosts(dcp_comm *comm, int *hosts, int *own, dcp_error *err) {
    comm_location *locations;
    int found = 0;
    if (!comm) return core_fail(err, DCP_ERR_ARG, "dcp_comm_hosts: comm is NULL");
    int status = gather_locations(comm, &locations, err);
    if (status) return status;
    for (int r = 0; r < comm->size; r++) { /* locations[host] becomes the location of that host */
        int host = 0;
        while (host < found && !comm_location_is_same(&locations[host], &locations[r])) host++;
        if (host == found) locations[found++] = locations[r];
        if (own && r == comm->rank) *own = host;
    }
    if (hosts) *hosts = found;
    free(locations);
    return DCP_OK;
}

static int duplicate_alone(const dcp_comm *comm, dcp_comm **out, dcp_error *err) {
    int status = dcp_comm_self(out, err);
    if (!status) (*out)->location = comm->location;
    return status;
}

int comm_duplicate(dcp_comm *comm, dcp_comm **out, dcp_error *err) {
    *out = NULL;
    if (comm->size == 1) return duplicate_alone(comm, out, err);
    uint64_t can = comm->duplicate != NULL;
    int status = comm_allreduce(comm, &can, 1, DCP_REDUCE_MIN, err);
    return status || !can ? status : comm->duplicate(comm, out, err);
}

int dcp_comm_rank(const dcp_comm *comm) { return comm ? comm->rank : DCP_ERR_ARG; }

int dcp_comm_size(const dcp_comm *comm) { return comm ? comm->size : DCP_ERR_ARG; }

void dcp_comm_destroy(dcp_comm *comm) {
    if (!comm) return;
    if (comm->destroy_ctx && comm->process == getpid()) comm->destroy_ctx(comm);
    comm_watch_release(comm->watch);
    comm_local_free(&comm->local);
    comm_groups_release(comm->hosts);
    free(comm->packing.bytes);
    free(comm->packing.send);
    free(comm->packing.receive);
    free(comm);
}

void dcp_comm_set_stop(dcp_comm *comm, int (*stop)(void *ctx), void *ctx) {
    if (!comm) return;
    comm->stop = stop;
    comm->stop_ctx = ctx;
}

int dcp_comm_set_limit(dcp_comm *comm, double seconds, dcp_error *err) {
    if (!comm) return core_fail(err, DCP_ERR_ARG, "dcp_comm_set_limit: comm is NULL");
    uint64_t limit = 0;
    int status = DCP_OK;
    if (comm_watch_limit_of(seconds, &limit))
        status = core_fail(err, DCP_ERR_ARG,
                           "dcp_comm_set_limit: %g s: the limit must be at least 0 (no limit) and "
                           "less than 1e9",
                           seconds);
    status = comm_agree(comm, status, err);
    if (!status) status = comm_allreduce(comm, &limit, 1, DCP_REDUCE_MAX, err);
    if (!status && comm->watch) comm->watch->limit_ns = limit;
    return status;
}

int comm_fail_broken(const dcp_comm *comm, const char *what, dcp_error *err) {
    const comm_failure f = comm_watch_failure(comm->watch);
    const char *then = "end this rank and start again";
    if (f.why == COMM_HAS_ENDED)
        core_fail(err, DCP_ERR_COMM,
                  "the %s among %d ranks failed: rank %d, process %lld, has ended; %s", what,
                  comm->size, f.rank, (long long)comm->watch->processes[f.rank].pid, then);
    else if (f.why == COMM_IS_LATE && f.rank < 0)
        core_fail(err, DCP_ERR_COMM,
                  "the %s among %d ranks failed: a rank did not come within %g s; %s", what,
                  comm->size, 1e-9 * (double)comm->watch->limit_ns, then);
    else if (f.why == COMM_IS_LATE)
        core_fail(err, DCP_ERR_COMM,
                  "the %s among %d ranks failed: rank %d did not come within %g s; %s", what,
                  comm->size, f.rank, 1e-9 * (double)comm->watch->limit_ns, then);
    else
        core_fail(err, DCP_ERR_COMM,
                  "the %s among %d ranks failed with code %d on rank %d: a rank or the network is "
                  "gone; %s",
                  what, comm->size, f.code, f.rank, then);
    if (err) err->rank = f.rank;
    return f.rank < 0 ? DCP_ERR_COMM : core_fail_rank(DCP_ERR_COMM, f.rank, err);
}

bool comm_is_broken(const dcp_comm *comm) {
    return comm->watch && comm_watch_is_broken(comm->watch);
}

int comm_check_code(const dcp_comm *comm, const char *what, int code, dcp_error *err) {
    if (code == 0) return DCP_OK;
    comm_watch_break(comm->watch, COMM_FAILED, code, comm->rank);
    return comm_fail_broken(comm, what, err);
}

int comm_broadcast(dcp_comm *comm, void *buf, uint64_t bytes, int root, dcp_error *err) {
    if (bytes == 0) return DCP_OK;
    if (comm_is_broken(comm)) return comm_fail_broken(comm, "broadcast", err);
    return comm_check_code(comm, "broadcast", comm->ops.broadcast(comm->ctx, buf, bytes, root),
                           err);
}

int comm_allreduce(dcp_comm *comm, uint64_t *buf, uint64_t count, dcp_reduce op, dcp_error *err) {
    if (count == 0) return DCP_OK;
    if (comm_is_broken(comm)) return comm_fail_broken(comm, "all-reduce", err);
    return comm_check_code(comm, "all-reduce", comm->ops.allreduce(comm->ctx, buf, count, op), err);
}

int comm_gather(dcp_comm *comm, const void *send, uint64_t bytes, void *recv, int root,
                dcp_error *err) {
    if (bytes == 0) return DCP_OK;
    if (comm_is_broken(comm)) return comm_fail_broken(comm, "gather", err);
    void *recv_on_root = comm->rank == root ? recv : NULL;
    return comm_check_code(comm, "gather",
                           comm->ops.gather(comm->ctx, send, bytes, recv_on_root, root), err);
}

int comm_alltoall(dcp_comm *comm, const void *send, const uint64_t *send_bytes, void *recv,
                  const uint64_t *recv_bytes, dcp_error *err) {
    if (comm_is_broken(comm)) return comm_fail_broken(comm, "all-to-all", err);
    return comm_check_code(comm, "all-to-all",
                           comm->ops.alltoall(comm->ctx, send, send_bytes, recv, recv_bytes), err);
}

int comm_barrier(dcp_comm *comm, dcp_error *err) {
    if (comm_is_broken(comm)) return comm_fail_broken(comm, "barrier", err);
    return comm_check_code(comm, "barrier", comm->ops.barrier(comm->ctx), err);
}

/* Returns what this rank reports to the others. If the caller passed no error, the report still
 * contains the status and its text. */
static dcp_error own_failure(const dcp_comm *comm, int status, const dcp_error *err) {
    dcp_error failure;
    core_fail(&failure, status, "%s", dcp_status_text(status));
    const dcp_error *own = err && err->status == status ? err : &failure;
    bool agreed_before = own == err && err->rank >= 0;
    if (comm->size > 1 && !agreed_before)
        core_fail_again(&failure, status, own, "rank %d: %s", comm->rank, own->message);
    else
        core_fail_again(&failure, status, own, "%s", own->message);
    failure.rank = agreed_before ? err->rank : comm->rank;
    return failure;
}

int comm_agree(dcp_comm *comm, int status, dcp_error *err) {
    uint64_t first_failed = status == DCP_OK ? INT_MAX : (uint64_t)comm->rank;
    int comm_status = comm_allreduce(comm, &first_failed, 1, DCP_REDUCE_MIN, err);
    if (comm_status != DCP_OK) return comm_status;
    if (first_failed == INT_MAX) return DCP_OK;

    dcp_error failure = {0};
    if (first_failed == (uint64_t)comm->rank) failure = own_failure(comm, status, err);
    comm_status = comm_broadcast(comm, &failure, sizeof failure, (int)first_failed, err);
    if (comm_status != DCP_OK) return comm_status;
    if (err) *err = failure;
    return failure.status;
}

int comm_agree_min(dcp_comm *comm, int status, uint64_t *values, size_t n, dcp_error *err) {
    uint64_t least[COMM_MIN_VALUES + 1];
    assert(n <= COMM_MIN_VALUES);
    least[0] = status == DCP_OK;
    memcpy(least + 1, values, n * sizeof *values);
    int comm_status = comm_allreduce(comm, least, n + 1, DCP_REDUCE_MIN, err);
    if (comm_status != DCP_OK) return comm_status;
    if (!least[0]) return comm_agree(comm, status, err); /* a failed rank has no valid values */
    memcpy(values, least + 1, n * sizeof *values);
    return DCP_OK;
}

/* Each rank that failed sets a bit of its own. If ranks put their numbers into the same word, the
 * numbers could cancel out in the XOR. */
int comm_agree_xor(dcp_comm *comm, int status, uint64_t *words, size_t n, dcp_error *err) {
    const size_t room = COMM_XOR_SCRATCH(comm->size), rank = (size_t)comm->rank;
    bool failed = false;
    memset(words + n, 0, room * sizeof *words);
    if (status != DCP_OK) words[n + rank / 64] = 1ULL << rank % 64;
    int comm_status = comm_allreduce(comm, words, n + room, DCP_REDUCE_XOR, err);
    if (comm_status != DCP_OK) return comm_status;
    for (size_t i = 0; i < room; i++) failed |= words[n + i] != 0;
    return failed ? comm_agree(comm, status, err) : DCP_OK;
}

/* Returns a key that is equal on the ranks of one host and, as far as 64 bits can tell, different
 * on different hosts. */
static uint64_t own_key(const dcp_comm *comm) {
    struct {
        comm_location named, machine;
    } both;
    both.named = comm->location;
    comm_location_of_machine(&both.machine);
    return core_crc64(&both, sizeof both);
}

int comm_hosts(dcp_comm *comm, const comm_groups **out, dcp_error *err) {
    const size_t ranks = (size_t)comm->size;
    *out = comm->hosts;
    if (comm->hosts) return DCP_OK;
    uint64_t *keys = comm->numbers;
    comm_groups *hosts = comm_groups_allocate(comm->size);
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

/* comm_shared has one 64-bit word in shared memory: the number of the operation that was cancelled
 * last, and the rank that cancelled it. Since no two operations have the same number, the word
 * never has to be reset. */

void comm_stop_begin(comm_stop *stop, dcp_comm *comm) {
    stop->comm = comm;
    stop->number = ++comm->operations;
    stop->stopped = false;
}

comm_stop comm_stop_of(dcp_comm *comm, const char *what, const char *outcome) {
    comm_stop stop = {.what = what, .outcome = outcome};
    comm_stop_begin(&stop, comm);
    return stop;
}

static void note_stop(comm_stop *stop, int rank) {
    stop->stopped = true;
    stop->rank = rank;
}

static void look_for_stop(comm_stop *stop, _Atomic uint64_t *told) {
    uint64_t seen = atomic_load_explicit(told, memory_order_relaxed);
    if (seen >> 32 == stop->number) note_stop(stop, (int)(uint32_t)seen);
}

static bool is_asked_for(const comm_stop *stop) {
    if (stop->cancelled && atomic_load(stop->cancelled)) return true;
    if (stop->should_stop && stop->should_stop(stop->ctx)) return true;
    return stop->comm && stop->comm->stop && stop->comm->stop(stop->comm->stop_ctx);
}

int comm_stop_poll(comm_stop *stop, dcp_error *err) {
    if (!stop) return DCP_OK;
    _Atomic uint64_t *told = stop->comm && stop->comm->shared ? stop->comm->shared->stopped : NULL;
    if (!stop->stopped && told) look_for_stop(stop, told);
    if (!stop->stopped && is_asked_for(stop)) {
        note_stop(stop, stop->comm ? stop->comm->rank : 0);
        if (told) atomic_store(told, (uint64_t)stop->number << 32 | (uint32_t)stop->rank);
    }
    return comm_stop_status(stop, err);
}

int comm_stop_status(const comm_stop *stop, dcp_error *err) {
    if (!stop || !stop->stopped) return DCP_OK;
    if (!stop->comm || stop->comm->size == 1)
        return core_fail(err, DCP_ERR_CANCELLED, "%s was cancelled: %s", stop->what, stop->outcome);
    core_fail(err, DCP_ERR_CANCELLED, "%s was cancelled by rank %d: %s", stop->what, stop->rank,
              stop->outcome);
    /* the rank that cancelled: comm_agree retains it, instead of naming the lowest rank that
     * noticed the cancellation */
    if (err) err->rank = stop->rank;
    return core_fail_rank(DCP_ERR_CANCELLED, stop->rank, err);
}

int dcp_stop_seldom(void *seldom) {
    dcp_seldom *s = seldom;
    if (!s || !s->stop) return 0;
    const double now = core_clock_now();
    if (s->asked > 0 && now - s->asked < s->seconds) return 0;
    s->asked = now;
    return s->stop(s->ctx);
}
