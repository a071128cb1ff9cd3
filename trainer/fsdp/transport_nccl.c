/* NCCL between GPUs.
 *
 * - gather and exchange are grouped sends and receives; NCCL computes no sums in them. The
 *   receivers compute the sums, in the order of fsdp/sum_order.h.
 * - Each group of ranks has a communicator; a group of all ranks uses the world's.
 * - All transfers are on one stream. A kernel of NCCL stays on the GPU until its peers have
 *   arrived, so kernels of two communicators, begun in different orders on two GPUs, could wait for
 *   each other forever. Events make a transfer wait for the kernels that were launched before it
 *   began (follow_kernels), and make kernels that are launched after nccl_finish wait for the
 *   transfer.
 * - A single rank needs no NCCL: parameters that it gathers from the host's memory are copied on
 *   the stream of transfers.
 * - Communicators do not block. Each wait for a communicator or a transfer checks for errors and
 *   for a timeout, so a failure ends the run within a bounded time. ncclCommAbort and MPI_Abort
 *   might never return, so an alarm ends the process in that case. */
#include "fsdp/transport.h"

#include <cuda_runtime_api.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "fsdp/nccl.h"

enum { NCCL_GROUPS = 3 };

typedef struct nccl_flight {
    fsdp_group group;
    cudaEvent_t done;
} nccl_flight;

typedef struct nccl_transport {
    fsdp_nccl nccl;
    cudaStream_t kernels; /* the kernels' stream; borrowed */
    cudaStream_t stream;  /* of all transfers */
    cudaEvent_t before;
    struct {
        int rank, ranks;
        ncclComm_t comm; /* NULL for a single rank; the world's for a group of all ranks */
    } groups[NCCL_GROUPS];
    uint64_t taken; /* one bit for each flight */
    nccl_flight flights[FSDP_MAX_TRANSFERS];
    const char **from; /* [ranks] for swap_segments: sources and their element counts */
    size_t *from_n;
    int *ones, *places; /* [ranks] for the first transfer: 1, 1 ... and 0, 1 ... */
    float *scratch;     /* [2 * ranks] on the device */
    kernels *k;
} nccl_transport;

enum { FAILED = 3 };
/* How long this rank waits for a peer, which may still be computing. */
static const double patience_s = 300;
static const unsigned farewell_s = 20;

static void leave_by_alarm(int signal) {
    (void)signal;
    _exit(FAILED);
}

/* Returns true if the group has a communicator and does not use another group's. */
static bool has_own(const nccl_transport *n, fsdp_group group) {
    const ncclComm_t comm = n->groups[group].comm;
    return comm && (group == FSDP_WORLD || comm != n->groups[FSDP_WORLD].comm);
}

/* Ends all communicators, whatever they are doing. */
static void nccl_abort(nccl_transport *n) {
    for (int g = 0; g < NCCL_GROUPS; g++)
        if (has_own(n, (fsdp_group)g)) n->nccl.abort(n->groups[g].comm);
}

/* Reports what failed and why, aborts all communicators and ends the run. */
static void nccl_fail(nccl_transport *n, const char *what, const char *why) {
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    fprintf(stderr, "dcp-train: rank %d: NCCL: %s: %s\n", rank, what, why);
    signal(SIGALRM, leave_by_alarm);
    alarm(farewell_s);
    nccl_abort(n);
    MPI_Abort(MPI_COMM_WORLD, FAILED);
    exit(FAILED);
}

static void nccl_check_cuda(nccl_transport *n, cudaError_t code) {
    if (code != cudaSuccess) nccl_fail(n, "CUDA", cudaGetErrorString(code));
}

static void nccl_check(nccl_transport *n, ncclResult_t result) {
    if (result != ncclSuccess && result != ncclInProgress)
        nccl_fail(n, "a call failed", n->nccl.error_text(result));
}

static void check_comm(nccl_transport *n, fsdp_group group, ncclResult_t *state) {
    nccl_check(n, n->nccl.async_error(n->groups[group].comm, state));
    nccl_check(n, *state);
}

static void doze(nccl_transport *n, double since) {
    const struct timespec moment = {.tv_nsec = 20000};
    if (MPI_Wtime() - since > patience_s) nccl_fail(n, "a rank does not answer", "time-out");
    nanosleep(&moment, NULL);
}

/* Waits until the communicator has accepted the work that it was given. */
static void nccl_settle(nccl_transport *n, fsdp_group group) {
    const double since = MPI_Wtime();
    ncclResult_t state;
    for (check_comm(n, group, &state); state == ncclInProgress; check_comm(n, group, &state))
        doze(n, since);
}

/* Waits until the transfer is done. All transfers are on one stream, so this one may be queued
 * behind another group's. */
static void nccl_wait(nccl_transport *n, const nccl_flight *f) {
    const double since = MPI_Wtime();
    cudaError_t code;
    while ((code = cudaEventQuery(f->done)) == cudaErrorNotReady) {
        ncclResult_t state;
        for (int g = 0; g < NCCL_GROUPS; g++)
            if (has_own(n, (fsdp_group)g)) check_comm(n, (fsdp_group)g, &state);
        doze(n, since);
    }
    nccl_check_cuda(n, code);
}

/* Takes the lowest free slot and returns it; -1 if there is none. */
static int take_slot(uint64_t *slots) {
    if (*slots == UINT64_MAX) return -1;
    const int slot = __builtin_ctzll(~*slots);
    *slots |= (uint64_t)1 << slot;
    return slot;
}

static void free_slot(uint64_t *slots, ptrdiff_t slot) { *slots &= ~((uint64_t)1 << slot); }

static nccl_transport *of(fsdp_transport *t) { return t->state; }

/* After this call, each new transfer waits for all work that was put on the kernels' stream before
 * the call. */
static void follow_kernels(nccl_transport *n) {
    nccl_check_cuda(n, cudaEventRecord(n->before, n->kernels));
    nccl_check_cuda(n, cudaStreamWaitEvent(n->stream, n->before, 0));
}

static nccl_flight *begin_flight(nccl_transport *n, fsdp_group group, fsdp_transfer *out) {
    const int slot = take_slot(&n->taken);
    if (slot < 0) nccl_fail(n, "transfers", "too many are on their way");
    nccl_flight *f = &n->flights[slot];
    f->group = group;
    *out = (fsdp_transfer){.is_on = true, .other = f};
    follow_kernels(n);
    return f;
}

static void launched(nccl_transport *n, nccl_flight *f) {
    if (n->groups[f->group].comm) nccl_settle(n, f->group);
    nccl_check_cuda(n, cudaEventRecord(f->done, n->stream));
}

/* Sends n->from_n[r] elements of n->from[r] to each rank r, and receives from each into `to`. */
static void swap_segments(nccl_transport *n, fsdp_group group, ncclDataType_t type, size_t size,
                          fsdp_segments to) {
    const int rank = n->groups[group].rank, ranks = n->groups[group].ranks;
    ncclComm_t comm = n->groups[group].comm;
    char *place = (char *)to.at + (size_t)to.starts[rank] * size;
    if (n->from_n[rank] && n->from[rank] != place)
        nccl_check_cuda(n, cudaMemcpyAsync(place, n->from[rank], n->from_n[rank] * size,
                                           cudaMemcpyDefault, n->stream));
    if (!comm) return;
    nccl_check(n, n->nccl.group_start());
    for (int r = 0; r < ranks; r++) {
        char *into = (char *)to.at + (size_t)to.starts[r] * size;
        const size_t out = n->from_n[r], in = (size_t)to.counts[r];
        if (r == rank) continue;
        if (out) nccl_check(n, n->nccl.send(n->from[r], out, type, r, comm, n->stream));
        if (in) nccl_check(n, n->nccl.recv(into, in, type, r, comm, n->stream));
    }
    nccl_check(n, n->nccl.group_end());
}

/* Copies data to the device with the copy engine, and rounds them there: a kernel that reads the
 * host's memory would occupy multiprocessors while it waits for the bus. */
static void nccl_narrow(fsdp_transport *t, uint16_t *to, const float *from, size_t n,
                        float *between, size_t room) {
    nccl_transport *all = of(t);
    follow_kernels(all);
    for (size_t at = 0, here; at < n; at += here) {
        here = n - at < room ? n - at : room;
        nccl_check_cuda(all, cudaMemcpyAsync(between, from + at, here * sizeof *from,
                                             cudaMemcpyDefault, all->stream));
        all->k->narrow_on(all->k, all->stream, to + at, between, here);
    }
}

/* Data in the host's memory are copied to their place first, and sent to the others from there. */
static void nccl_gather(fsdp_transport *t, fsdp_group group, kernels_type type, const void *own,
                        fsdp_segments to, fsdp_transfer *out) {
    nccl_transport *n = of(t);
    nccl_flight *f = begin_flight(n, group, out);
    const int rank = n->groups[group].rank;
    const bool bf16 = type == KERNELS_BF16;
    const size_t size = bf16 ? sizeof(uint16_t) : sizeof(float);
    for (int r = 0; r < n->groups[group].ranks; r++) {
        n->from[r] = r == rank ? own : (const char *)to.at + (size_t)to.starts[rank] * size;
        n->from_n[r] = (size_t)to.counts[rank];
    }
    swap_segments(n, group, bf16 ? ncclBfloat16 : ncclFloat32, size, to);
    launched(n, f);
}

static void nccl_exchange(fsdp_transport *t, fsdp_group group, fsdp_segments from, fsdp_segments to,
                          fsdp_transfer *out) {
    nccl_transport *n = of(t);
    nccl_flight *f = begin_flight(n, group, out);
    for (int r = 0; r < n->groups[group].ranks; r++) {
        n->from_n[r] = (size_t)from.counts[r];
        n->from[r] = NULL;
        if (n->from_n[r]) n->from[r] = (const char *)((const float *)from.at + from.starts[r]);
    }
    swap_segments(n, group, ncclFloat32, sizeof(float), to);
    launched(n, f);
}

/* One reduction for each rank, because ncclReduceScatter requires equal lengths. */
static void nccl_reduce_scatter(fsdp_transport *t, fsdp_group group, const float *from, float *to,
                                const int *counts, fsdp_transfer *out) {
    nccl_transport *n = of(t);
    nccl_flight *f = begin_flight(n, group, out);
    ncclComm_t comm = n->groups[group].comm;
    if (comm) {
        nccl_check(n, n->nccl.group_start());
        for (int r = 0; r < n->groups[group].ranks; from += counts[r++])
            if (counts[r])
                nccl_check(n, n->nccl.reduce(from, to, (size_t)counts[r], ncclFloat32, ncclSum, r,
                                             comm, n->stream));
        nccl_check(n, n->nccl.group_end());
    } else if (counts[0]) {
        nccl_check_cuda(n, cudaMemcpyAsync(to, from, (size_t)counts[0] * sizeof *to,
                                           cudaMemcpyDefault, n->stream));
    }
    launched(n, f);
}

static void nccl_all_reduce(fsdp_transport *t, fsdp_group group, float *sums, int count,
                            fsdp_transfer *out) {
    nccl_transport *n = of(t);
    nccl_flight *f = begin_flight(n, group, out);
    if (n->groups[group].comm && count)
        nccl_check(n, n->nccl.all_reduce(sums, sums, (size_t)count, ncclFloat32, ncclSum,
                                         n->groups[group].comm, n->stream));
    launched(n, f);
}

/* Does nothing: NCCL's transfers proceed without calls. */
static void nccl_poll(fsdp_transport *t, fsdp_transfer *transfer) { (void)t, (void)transfer; }

static void nccl_finish(fsdp_transport *t, fsdp_transfer *transfer) {
    nccl_transport *n = of(t);
    nccl_flight *f = transfer->other;
    if (!transfer->is_on) return;
    nccl_wait(n, f);
    nccl_check_cuda(n, cudaStreamWaitEvent(n->kernels, f->done, 0));
    free_slot(&n->taken, f - n->flights);
    transfer->is_on = false;
}

static void nccl_destroy(fsdp_transport *t) {
    nccl_transport *n = of(t);
    nccl_abort(n); /* no transfer is in flight, so this interrupts none */
    if (n->stream) cudaStreamDestroy(n->stream);
    for (size_t i = 0; i < FSDP_MAX_TRANSFERS; i++)
        if (n->flights[i].done) cudaEventDestroy(n->flights[i].done);
    if (n->before) cudaEventDestroy(n->before);
    n->k->free(n->k, n->scratch);
    free(n->from);
    free(n->from_n);
    free(n->ones);
    free(n->places);
    free(n);
}

static int make_stream(nccl_transport *n) {
    int least, greatest;
    if (cudaDeviceGetStreamPriorityRange(&least, &greatest) != cudaSuccess ||
        cudaStreamCreateWithPriority(&n->stream, cudaStreamNonBlocking, greatest) != cudaSuccess)
        return 1;
    bool failed = cudaEventCreateWithFlags(&n->before, cudaEventDisableTiming) != cudaSuccess;
    for (size_t i = 0; i < FSDP_MAX_TRANSFERS; i++)
        failed |=
            cudaEventCreateWithFlags(&n->flights[i].done, cudaEventDisableTiming) != cudaSuccess;
    return failed;
}

/* Collective over the group. */
static void join_group(nccl_transport *n, fsdp_group group, MPI_Comm mpi) {
    ncclConfig_t how = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id = {{0}};
    int rank, ranks;
    MPI_Comm_rank(mpi, &rank);
    MPI_Comm_size(mpi, &ranks);
    n->groups[group].rank = rank;
    n->groups[group].ranks = ranks;
    if (ranks == 1) return;
    if (group != FSDP_WORLD && ranks == n->groups[FSDP_WORLD].ranks) {
        n->groups[group].comm = n->groups[FSDP_WORLD].comm;
        return;
    }
    if (rank == 0) nccl_check(n, n->nccl.unique_id(&id));
    MPI_Bcast(&id, (int)sizeof id, MPI_BYTE, 0, mpi);
    how.blocking = 0;
    nccl_check(n, n->nccl.init(&n->groups[group].comm, ranks, id, rank, &how));
    nccl_settle(n, group);
}

static int take_lists(nccl_transport *n, int ranks) {
    n->from = calloc((size_t)ranks, sizeof *n->from);
    n->from_n = calloc((size_t)ranks, sizeof *n->from_n);
    n->ones = calloc((size_t)ranks, sizeof *n->ones);
    n->places = calloc((size_t)ranks, sizeof *n->places);
    n->scratch = n->k->alloc(n->k, 2 * (size_t)ranks * sizeof *n->scratch);
    if (!n->from || !n->from_n || !n->ones || !n->places || !n->scratch) return 1;
    for (int r = 0; r < ranks; r++) {
        n->ones[r] = 1;
        n->places[r] = r;
    }
    return 0;
}

/* NCCL connects ranks, and allocates memory for that, at their first transfer of each kind. This
 * function makes these first transfers. */
static void connect_groups(fsdp_transport *t, int sums) {
    nccl_transport *n = of(t);
    for (int g = 0; g < NCCL_GROUPS; g++) {
        float *to = n->scratch + n->groups[g].ranks;
        fsdp_transfer transfer = {0};
        nccl_exchange(t, (fsdp_group)g, (fsdp_segments){n->scratch, n->ones, n->places},
                      (fsdp_segments){to, n->ones, n->places}, &transfer);
        nccl_finish(t, &transfer);
        if (!sums) continue;
        nccl_reduce_scatter(t, (fsdp_group)g, n->scratch, to, n->ones, &transfer);
        nccl_finish(t, &transfer);
        nccl_all_reduce(t, (fsdp_group)g, to, 1, &transfer);
        nccl_finish(t, &transfer);
    }
}

/* Returns true if this rank's library can be used: several ranks on one GPU require NCCL 2.30 or
 * later and NCCL_MULTI_RANK_GPU_ENABLE=1. */
static bool is_usable(nccl_transport *n, int ranks, int shared) {
    const char *allowed = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    int version = 0;
    if (ranks == 1) return true;
    if (fsdp_nccl_load(&n->nccl) || n->nccl.version(&version) != ncclSuccess) return false;
    return !shared || (version >= NCCL_VERSION(2, 30, 0) && allowed && allowed[0] == '1');
}

int fsdp_transport_nccl(const fsdp_mesh *mesh, kernels *k, int shared, int sums,
                        fsdp_transport *out) {
    nccl_transport *n = calloc(1, sizeof *n);
    void *stream = NULL;
    int ranks;
    MPI_Comm_size(mesh->world, &ranks);
    k->place(k, &stream);
    if (n) n->k = k;
    int usable = n && is_usable(n, ranks, shared) && !make_stream(n) && !take_lists(n, ranks);
    MPI_Allreduce(MPI_IN_PLACE, &usable, 1, MPI_INT, MPI_MIN, mesh->world);
    *out = (fsdp_transport){.name = "nccl",
                            .state = n,
                            .narrow = nccl_narrow,
                            .gather = nccl_gather,
                            .exchange = nccl_exchange,
                            .reduce_scatter = nccl_reduce_scatter,
                            .all_reduce = nccl_all_reduce,
                            .poll = nccl_poll,
                            .finish = nccl_finish,
                            .destroy = nccl_destroy};
    if (!usable) {
        if (n) nccl_destroy(out);
        return 1;
    }
    n->kernels = stream;
    /* connect_groups makes only the connections for small sums. NCCL uses other connections for
     * larger sums; with 0, it makes those connections at the start, too, instead of on first
     * use. */
    if (sums) setenv("NCCL_RUNTIME_CONNECT", "0", 0);
    join_group(n, FSDP_WORLD, mesh->world);
    join_group(n, FSDP_SHARDS, mesh->shards);
    join_group(n, FSDP_REPLICAS, mesh->replicas);
    connect_groups(out, sums);
    return 0;
}
