/* NCCL between GPUs. gather and exchange are grouped sends and receives, which add nothing: sums
 * are formed by whoever receives, in their order. Each group of ranks has a communicator and a
 * stream; events order it behind the kernels' stream and the kernels' stream behind it.
 *
 * Communicators do not block, so that a peer that died cannot hold this rank: whoever waits looks
 * for errors and at the clock, and where something failed aborts all communicators and ends the
 * run. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "nccl.h"
#include "transport.h"

enum { GROUPS = 3, MOST_TRANSFERS = 64 };
static const double patience_s = 300; /* a peer may compute that much longer */

typedef struct flight {
    int busy;
    fsdp_group group;
    cudaEvent_t done;
} flight;

typedef struct nccl_transport {
    nccl_library nccl;
    cudaStream_t kernels; /* theirs; borrowed */
    cudaEvent_t before;
    struct {
        int rank, ranks;
        ncclComm_t comm; /* NULL: of one rank */
        cudaStream_t stream;
    } groups[GROUPS];
    flight flights[MOST_TRANSFERS];
} nccl_transport;

static nccl_transport *of(fsdp_transport *t) { return t->state; }

/* Nothing is returned: a failure ends the run, within a bounded time. */
static void fail(nccl_transport *n, const char *what, const char *why) {
    fprintf(stderr, "dcp-train: NCCL: %s: %s\n", what, why);
    for (int g = 0; g < GROUPS; g++)
        if (n->groups[g].comm) n->nccl.abort(n->groups[g].comm);
    MPI_Abort(MPI_COMM_WORLD, 3);
    exit(3);
}

static void check_cuda(nccl_transport *n, cudaError_t code) {
    if (code != cudaSuccess) fail(n, "CUDA", cudaGetErrorString(code));
}

static void check(nccl_transport *n, ncclResult_t result) {
    if (result != ncclSuccess && result != ncclInProgress)
        fail(n, "a call failed", n->nccl.error_text(result));
}

static void check_comm(nccl_transport *n, fsdp_group group, ncclResult_t *state) {
    check(n, n->nccl.async_error(n->groups[group].comm, state));
    check(n, *state);
}

static void doze(nccl_transport *n, double since) {
    const struct timespec moment = {.tv_nsec = 20000};
    if (MPI_Wtime() - since > patience_s) fail(n, "a rank does not answer", "time-out");
    nanosleep(&moment, NULL);
}

/* Until the communicator has taken what it was given. */
static void settle(nccl_transport *n, fsdp_group group) {
    const double since = MPI_Wtime();
    ncclResult_t state;
    for (check_comm(n, group, &state); state == ncclInProgress; check_comm(n, group, &state))
        doze(n, since);
}

static flight *begin(nccl_transport *n, fsdp_group group, fsdp_transfer *out) {
    size_t i = 0;
    while (i < MOST_TRANSFERS - 1 && n->flights[i].busy) i++;
    flight *f = &n->flights[i];
    if (f->busy) fail(n, "transfers", "too many are on their way");
    f->busy = 1;
    f->group = group;
    *out = (fsdp_transfer){.is_on = 1, .other = f};
    check_cuda(n, cudaEventRecord(n->before, n->kernels));
    check_cuda(n, cudaStreamWaitEvent(n->groups[group].stream, n->before, 0));
    return f;
}

static void launched(nccl_transport *n, flight *f) {
    if (n->groups[f->group].comm) settle(n, f->group);
    check_cuda(n, cudaEventRecord(f->done, n->groups[f->group].stream));
}

/* from: to each rank; to: from each. own: what this rank keeps. */
static void swap(nccl_transport *n, fsdp_group group, ncclDataType_t type, size_t size,
                 const char *const *from, const size_t *from_n, fsdp_stretches to) {
    const int rank = n->groups[group].rank, ranks = n->groups[group].ranks;
    cudaStream_t stream = n->groups[group].stream;
    ncclComm_t comm = n->groups[group].comm;
    char *place = (char *)to.at + (size_t)to.starts[rank] * size;
    if (from_n[rank] && from[rank] != place)
        check_cuda(n, cudaMemcpyAsync(place, from[rank], from_n[rank] * size,
                                      cudaMemcpyDeviceToDevice, stream));
    if (!comm) return;
    check(n, n->nccl.group_start());
    for (int r = 0; r < ranks; r++) {
        char *into = (char *)to.at + (size_t)to.starts[r] * size;
        if (r == rank) continue;
        if (from_n[r]) check(n, n->nccl.send(from[r], from_n[r], type, r, comm, stream));
        if (to.counts[r]) check(n, n->nccl.recv(into, (size_t)to.counts[r], type, r, comm, stream));
    }
    check(n, n->nccl.group_end());
}

/* Addresses and lengths for swap, of which there are few ranks' worth. */
static void lists(nccl_transport *n, int ranks, const char ***from, size_t **from_n) {
    *from = calloc((size_t)ranks, sizeof **from);
    *from_n = calloc((size_t)ranks, sizeof **from_n);
    if (!*from || !*from_n) fail(n, "transfers", "out of memory");
}

static void gather(fsdp_transport *t, fsdp_group group, kernels_type type, const void *own,
                   fsdp_stretches to, fsdp_transfer *out) {
    nccl_transport *n = of(t);
    flight *f = begin(n, group, out);
    const int bf16 = type == KERNELS_BF16, ranks = n->groups[group].ranks;
    const char **from;
    size_t *from_n;
    lists(n, ranks, &from, &from_n);
    for (int r = 0; r < ranks; r++) {
        from[r] = own;
        from_n[r] = (size_t)to.counts[n->groups[group].rank];
    }
    swap(n, group, bf16 ? ncclBfloat16 : ncclFloat32, bf16 ? 2 : sizeof(float), from, from_n, to);
    free(from);
    free(from_n);
    launched(n, f);
}

static void exchange(fsdp_transport *t, fsdp_group group, fsdp_stretches from, fsdp_stretches to,
                     fsdp_transfer *out) {
    nccl_transport *n = of(t);
    flight *f = begin(n, group, out);
    const int ranks = n->groups[group].ranks;
    const char **list;
    size_t *counts;
    lists(n, ranks, &list, &counts);
    for (int r = 0; r < ranks; r++) {
        counts[r] = (size_t)from.counts[r];
        if (counts[r]) list[r] = (const char *)((const float *)from.at + from.starts[r]);
    }
    swap(n, group, ncclFloat32, sizeof(float), list, counts, to);
    free(list);
    free(counts);
    launched(n, f);
}

/* A sum for each rank: ncclReduceScatter wants all of one length. */
static void reduce_scatter(fsdp_transport *t, fsdp_group group, const float *from, float *to,
                           const int *counts, fsdp_transfer *out) {
    nccl_transport *n = of(t);
    flight *f = begin(n, group, out);
    ncclComm_t comm = n->groups[group].comm;
    cudaStream_t stream = n->groups[group].stream;
    if (comm) {
        check(n, n->nccl.group_start());
        for (int r = 0; r < n->groups[group].ranks; from += counts[r++])
            if (counts[r])
                check(n, n->nccl.reduce(from, to, (size_t)counts[r], ncclFloat32, ncclSum, r, comm,
                                        stream));
        check(n, n->nccl.group_end());
    } else if (counts[0]) {
        check_cuda(n, cudaMemcpyAsync(to, from, (size_t)counts[0] * sizeof *to,
                                      cudaMemcpyDeviceToDevice, stream));
    }
    launched(n, f);
}

static void all_reduce(fsdp_transport *t, fsdp_group group, float *sums, int count,
                       fsdp_transfer *out) {
    nccl_transport *n = of(t);
    flight *f = begin(n, group, out);
    if (n->groups[group].comm && count)
        check(n, n->nccl.all_reduce(sums, sums, (size_t)count, ncclFloat32, ncclSum,
                                    n->groups[group].comm, n->groups[group].stream));
    launched(n, f);
}

/* Transfers proceed by themselves. */
static void poll(fsdp_transport *t, fsdp_transfer *transfer) { (void)t, (void)transfer; }

static void finish(fsdp_transport *t, fsdp_transfer *transfer) {
    nccl_transport *n = of(t);
    flight *f = transfer->other;
    if (!transfer->is_on) return;
    const double since = MPI_Wtime();
    cudaError_t code;
    while ((code = cudaEventQuery(f->done)) == cudaErrorNotReady) {
        ncclResult_t state;
        if (n->groups[f->group].comm) check_comm(n, f->group, &state);
        doze(n, since);
    }
    check_cuda(n, code);
    check_cuda(n, cudaStreamWaitEvent(n->kernels, f->done, 0));
    f->busy = 0;
    transfer->is_on = 0;
}

static void destroy(fsdp_transport *t) {
    nccl_transport *n = of(t);
    for (int g = 0; g < GROUPS; g++) {
        if (n->groups[g].comm) n->nccl.abort(n->groups[g].comm); /* nothing is on its way */
        if (n->groups[g].stream) cudaStreamDestroy(n->groups[g].stream);
    }
    for (size_t i = 0; i < MOST_TRANSFERS; i++)
        if (n->flights[i].done) cudaEventDestroy(n->flights[i].done);
    if (n->before) cudaEventDestroy(n->before);
    nccl_unload(&n->nccl);
    free(n);
}

static int make_events(nccl_transport *n) {
    int failed = cudaEventCreateWithFlags(&n->before, cudaEventDisableTiming) != cudaSuccess;
    for (size_t i = 0; i < MOST_TRANSFERS; i++)
        failed |=
            cudaEventCreateWithFlags(&n->flights[i].done, cudaEventDisableTiming) != cudaSuccess;
    return failed;
}

/* Collective over the group. */
static void join(nccl_transport *n, fsdp_group group, MPI_Comm mpi) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id = {{0}};
    int rank, ranks, least, greatest;
    MPI_Comm_rank(mpi, &rank);
    MPI_Comm_size(mpi, &ranks);
    n->groups[group].rank = rank;
    n->groups[group].ranks = ranks;
    check_cuda(n, cudaDeviceGetStreamPriorityRange(&least, &greatest));
    check_cuda(
        n, cudaStreamCreateWithPriority(&n->groups[group].stream, cudaStreamNonBlocking, greatest));
    if (ranks == 1) return;
    if (rank == 0) check(n, n->nccl.unique_id(&id));
    MPI_Bcast(&id, (int)sizeof id, MPI_BYTE, 0, mpi);
    config.blocking = 0;
    check(n, n->nccl.init(&n->groups[group].comm, ranks, id, rank, &config));
    settle(n, group);
}

/* Whether this rank's library would do: several ranks on a GPU are for NCCL 2.30 on, where asked.
 */
static int is_usable(nccl_transport *n, int shared) {
    const char *allowed = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    int version = 0;
    if (nccl_load(&n->nccl) || n->nccl.version(&version) != ncclSuccess) return 0;
    return !shared || (version >= NCCL_VERSION(2, 30, 0) && allowed && allowed[0] == '1');
}

int fsdp_transport_nccl(const fsdp_mesh *mesh, kernels *k, int shared, fsdp_transport *out) {
    nccl_transport *n = calloc(1, sizeof *n);
    void *stream = NULL;
    k->place(k, &stream);
    int usable = n && is_usable(n, shared) && !make_events(n);
    MPI_Allreduce(MPI_IN_PLACE, &usable, 1, MPI_INT, MPI_MIN, mesh->world);
    *out = (fsdp_transport){.name = "nccl",
                            .state = n,
                            .gather = gather,
                            .exchange = exchange,
                            .reduce_scatter = reduce_scatter,
                            .all_reduce = all_reduce,
                            .poll = poll,
                            .finish = finish,
                            .destroy = destroy};
    if (!usable) {
        if (n) destroy(out);
        return 1;
    }
    n->kernels = stream;
    join(n, FSDP_WORLD, mesh->world);
    join(n, FSDP_SHARDS, mesh->shards);
    join(n, FSDP_REPLICAS, mesh->replicas);
    return 0;
}
