/* A communicator over MPI: messages between hosts, shared memory within one host.
 *
 * MPI's own collectives are used only at the beginning, when the ranks report who they are, and to
 * duplicate MPI's communicator. They are started and then polled, so a rank that ends meanwhile is
 * noticed. Until the ranks know each other, only the limit reveals that a rank has ended.
 * Afterwards, a check of the rank's process reveals it. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "comm/host.h"
#include "comm/sharing.h"
#include "core/fail.h"
#include "dcp/mpi.h"

/* A rank's report about itself. */
typedef struct introduction {
    comm_process process;
    uint64_t limit_ns;
    char no_limit[32]; /* the beginning of DCP_COMM_LIMIT if it is not valid; else empty */
} introduction;

static comm_pairs *pairs_of(const dcp_comm *comm) { return &((comm_mpi *)comm->ctx)->pairs; }

/* Does not free MPI's communicator if a rank is gone, since freeing it is collective. */
static void free_comm(const comm_pairs *p) {
    int finalized = 0, which;
    MPI_Comm comm = p->comm;
    MPI_Finalized(&finalized);
    if (comm != MPI_COMM_NULL && !finalized && !comm_watch_is_broken(p->watch) &&
        !comm_watch_has_ended(p->watch, -1, &which))
        MPI_Comm_free(&comm);
}

/* Broken contexts, whose memory MPI may still use. */
static _Atomic(comm_mpi *) kept;

static void keep(comm_mpi *ctx) {
    ctx->next = atomic_load(&kept);
    while (!atomic_compare_exchange_weak(&kept, &ctx->next, ctx)) continue;
}

static void destroy_mpi(dcp_comm *comm) {
    comm_mpi *ctx = comm->ctx;
    comm_host_leave(comm);
    free_comm(&ctx->pairs);
    if (comm_watch_is_broken(ctx->pairs.watch)) {
        keep(ctx);
        return;
    }
    free(ctx->gathered);
    free(ctx->pairs.spare);
    free(ctx);
}

static int check_running(const char *call, dcp_error *err) {
    int initialized = 0, finalized = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (initialized && !finalized) return DCP_OK;
    return core_fail(err, DCP_ERR_STATE, "%s: call it between MPI_Init and MPI_Finalize", call);
}

static int check_mpi(MPI_Comm comm, dcp_error *err) {
    int inter = 0;
    int status = check_running("dcp_comm_from_mpi", err);
    if (status) return status;
    if (comm == MPI_COMM_NULL)
        return core_fail(err, DCP_ERR_ARG, "dcp_comm_from_mpi: the communicator is MPI_COMM_NULL");
    MPI_Comm_test_inter(comm, &inter);
    if (inter)
        return core_fail(
            err, DCP_ERR_ARG,
            "dcp_comm_from_mpi: the communicator is an inter-communicator; merge it first");
    return DCP_OK;
}

static bool threads_may_call(void) {
    int level = MPI_THREAD_SINGLE;
    MPI_Query_thread(&level);
    return level == MPI_THREAD_MULTIPLE;
}

static int duplicate_mpi(dcp_comm *comm, dcp_comm **out, dcp_error *err);

/* Takes ownership of `watch`, which may be NULL. Returns NULL if memory is short. */
static dcp_comm *make_object(int rank, int size, comm_watch *watch) {
    dcp_comm *comm = comm_create(&comm_pairs_ops, NULL, watch, rank, size);
    comm_mpi *ctx = calloc(1, sizeof *ctx);
    uint64_t *spare = comm_pairs_make_spare();
    if (!comm || !ctx || !spare) {
        free(spare);
        free(ctx);
        dcp_comm_destroy(comm);
        return NULL;
    }
    ctx->made = MPI_COMM_NULL;
    ctx->pairs = (comm_pairs){.comm = MPI_COMM_NULL,
                              .first = MPI_COMM_NULL,
                              .watch = watch,
                              .spare = spare,
                              .rank = rank,
                              .size = size};
    comm->ctx = comm->mpi = ctx;
    comm->destroy_ctx = destroy_mpi;
    comm->update_location = comm_host_update;
    if (threads_may_call()) comm->duplicate = duplicate_mpi;
    return comm;
}

/* Collective: gives the object a duplicate of `parent`. */
static int duplicate_parent(dcp_comm *comm, MPI_Comm parent, dcp_error *err) {
    comm_mpi *ctx = comm->ctx;
    MPI_Request request;
    const int code = MPI_Comm_idup(parent, &ctx->made, &request);
    if (comm_batch_finish_request(&ctx->pairs, code, request))
        return comm_fail_broken(comm, "duplication of MPI's communicator", err);
    ctx->pairs.comm = ctx->made;
    if (ctx->pairs.first == MPI_COMM_NULL) ctx->pairs.first = ctx->made;
    MPI_Comm_set_errhandler(ctx->made, MPI_ERRORS_RETURN);
    return DCP_OK;
}

/* Collective: returns true if all ranks have allocated what they need; `comm` is NULL on a rank
 * that has not. `all` is static, since MPI may still use it if the collective never completes. */
static bool all_made(MPI_Comm parent, dcp_comm *comm) {
    static _Thread_local int all;
    MPI_Request request;
    all = comm != NULL;
    int code = MPI_Iallreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, parent, &request);
    if (comm) return comm_batch_finish_request(pairs_of(comm), code, request) == 0 && all;
    if (code == MPI_SUCCESS) MPI_Wait(&request, MPI_STATUS_IGNORE);
    return false;
}

static void introduce_self(comm_watch *watch, introduction *own) {
    const char *limit = getenv("DCP_COMM_LIMIT");
    comm_process_find(&own->process);
    if (comm_watch_read_limit(limit, &own->limit_ns))
        snprintf(own->no_limit, sizeof own->no_limit, "%s", limit);
    watch->limit_ns = own->limit_ns;
}

/* Stores what the ranks have reported about themselves. */
static int know_ranks(comm_watch *watch, const introduction *list, dcp_error *err) {
    for (int r = 0; r < watch->size; r++) {
        watch->processes[r] = list[r].process;
        if (list[r].limit_ns > watch->limit_ns) watch->limit_ns = list[r].limit_ns;
    }
    for (int r = 0; r < watch->size; r++) {
        if (!*list[r].no_limit) continue;
        core_fail(err, DCP_ERR_ARG,
                  "rank %d: DCP_COMM_LIMIT in the environment is \"%s\": it must be a number of "
                  "seconds below 1e9; 0 means no limit",
                  r, list[r].no_limit);
        if (err) err->rank = r;
        return DCP_ERR_ARG;
    }
    return DCP_OK;
}

/* Collective: the ranks report who they are. list[size] is this rank's introduction. */
static int introduce(dcp_comm *comm, MPI_Comm parent, introduction *list, dcp_error *err) {
    MPI_Request request;
    introduction *own = &list[comm->size];
    const int code =
        MPI_Iallgather(own, sizeof *own, MPI_BYTE, list, sizeof *list, MPI_BYTE, parent, &request);
    if (comm_batch_finish_request(pairs_of(comm), code, request))
        return comm_fail_broken(comm, "introduction", err);
    return know_ranks(comm->watch, list, err);
}

/* Collective: makes a communicator over a duplicate of `parent`. Its ranks use only messages. */
static int make_apart(MPI_Comm parent, dcp_comm **out, dcp_error *err) {
    int rank, size;
    MPI_Comm_rank(parent, &rank);
    MPI_Comm_size(parent, &size);
    comm_watch *watch = comm_watch_create(rank, size);
    dcp_comm *comm = watch ? make_object(rank, size, watch) : NULL;
    introduction *list = calloc((size_t)size + 1, sizeof *list);
    if (comm) ((comm_mpi *)comm->ctx)->gathered = list;
    if (comm && list) introduce_self(watch, &list[size]);
    int status = DCP_OK;
    if (!all_made(parent, list ? comm : NULL))
        status = comm && comm_watch_is_broken(watch)
                     ? comm_fail_broken(comm, "beginning", err)
                     : core_fail_memory(err, (size_t)size * sizeof *list);
    if (status == DCP_OK) status = introduce(comm, parent, list, err);
    if (!comm) free(list);
    if (status == DCP_OK) status = duplicate_parent(comm, parent, err);
    if (status == DCP_OK)
        *out = comm;
    else
        dcp_comm_destroy(comm);
    return status;
}

static int duplicate_mpi(dcp_comm *comm, dcp_comm **out, dcp_error *err) {
    const comm_pairs *p = pairs_of(comm);
    dcp_comm *made = make_object(comm->rank, comm->size, comm_watch_share(comm->watch));
    int status = made ? DCP_OK : core_fail_memory(err, sizeof *made);
    status = comm_agree(comm, status, err);
    if (status == DCP_OK) {
        pairs_of(made)->first = p->first;
        pairs_of(made)->yields = true;
        made->location = comm->location;
        made->hosts = comm_groups_share(comm->hosts);
        status = duplicate_parent(made, p->comm, err);
    }
    if (status == DCP_OK) status = comm_host_join(made, err);
    if (status == DCP_OK)
        *out = made;
    else
        dcp_comm_destroy(made);
    return status;
}

int dcp_comm_from_mpi(MPI_Comm comm, dcp_comm **out, dcp_error *err) {
    dcp_comm *made;
    if (!out) return core_fail(err, DCP_ERR_ARG, "dcp_comm_from_mpi: out is NULL");
    int status = check_mpi(comm, err);
    if (status == DCP_OK) status = make_apart(comm, &made, err);
    if (status != DCP_OK) return status;
    status = comm_host_join(made, err);
    if (status == DCP_OK)
        *out = made;
    else
        dcp_comm_destroy(made);
    return status;
}

int dcp_comm_from_fortran(MPI_Fint comm, dcp_comm **out, dcp_error *err) {
    int status = check_running("dcp_comm_from_fortran", err); /* or MPI would end the process */
    if (status) return status;
    MPI_Comm given = MPI_Comm_f2c(comm);
#ifdef OPEN_MPI /* Open MPI converts an invalid number to NULL */
    if (!given) given = MPI_COMM_NULL;
#endif
    if (given != MPI_COMM_NULL) return dcp_comm_from_mpi(given, out, err);
    return core_fail(err, DCP_ERR_ARG,
                     "dcp_comm_from_fortran: %lld is no communicator of MPI in Fortran, or is "
                     "MPI_COMM_NULL; with mpi_f08, pass the member MPI_VAL of type(MPI_Comm)",
                     (long long)comm);
}

void *dcp_host_memory_create(MPI_Comm group, size_t bytes) {
    dcp_comm *comm;
    void *memory = NULL;
    if (bytes == 0 || check_mpi(group, NULL) || make_apart(group, &comm, NULL)) return NULL;
    comm_host_memory_create(comm, bytes, &memory, NULL);
    dcp_comm_destroy(comm);
    return memory;
}
