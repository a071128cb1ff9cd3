/* The parts of NCCL that a transport uses: messages of MPI on the streams of streams.c. */
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fsdp/nccl.h"
#include "streams.h"

enum { MOST_PARTS = 64 };

typedef enum message_kind { SENT, RECEIVED, REDUCED, REDUCED_FOR_ALL } message_kind;

typedef struct message {
    message_kind kind;
    int peer; /* or the rank that gets the sum */
    const void *from;
    void *to;
    size_t n, size; /* elements, and bytes of one */
    MPI_Comm comm;
} message;

typedef struct messages {
    size_t n;
    MPI_Request *requests; /* NULL: not begun */
    message list[];
} messages;

struct ncclComm {
    MPI_Comm mpi;
};

int streams_version, streams_loaded, streams_aborted, streams_sums;
MPI_Comm streams_comms[3];
int streams_n_comms, streams_host_ranks;
uint64_t streams_between_hosts;
static message group[MOST_PARTS];
static size_t n_group;
static cudaStream_t group_stream, busy_stream;
static int busy; /* groups on their way */

static void begin_message(const message *m, MPI_Request *out) {
    const void *from = m->from == m->to ? MPI_IN_PLACE : m->from;
    const int n = (int)m->n, bytes = (int)(m->n * m->size);
    switch (m->kind) {
    case SENT:
        MPI_Isend(m->from, bytes, MPI_BYTE, m->peer, 0, m->comm, out);
        break;
    case RECEIVED:
        MPI_Irecv(m->to, bytes, MPI_BYTE, m->peer, 0, m->comm, out);
        break;
    case REDUCED:
        MPI_Ireduce(m->from, m->to, n, MPI_FLOAT, MPI_SUM, m->peer, m->comm, out);
        break;
    case REDUCED_FOR_ALL:
        MPI_Iallreduce(from, m->to, n, MPI_FLOAT, MPI_SUM, m->comm, out);
        break;
    }
}

static int go_on(void *ctx) {
    messages *m = ctx;
    int done;
    if (!m->requests) {
        m->requests = calloc(m->n, sizeof *m->requests);
        for (size_t i = 0; i < m->n; i++) begin_message(&m->list[i], &m->requests[i]);
    }
    MPI_Testall((int)m->n, m->requests, &done, MPI_STATUSES_IGNORE);
    if (!done || streams_fault_now == STREAMS_SILENT) return 0;
    busy--;
    return 1;
}

static ncclResult_t version(int *out) {
    *out = streams_version;
    return ncclSuccess;
}
static ncclResult_t unique_id(ncclUniqueId *out) {
    memset(out, 1, sizeof *out);
    return ncclSuccess;
}
static ncclResult_t init(ncclComm_t *out, int ranks, ncclUniqueId id, int rank,
                         ncclConfig_t *config) {
    static int calls;
    const MPI_Comm mpi = streams_comms[calls++ % streams_n_comms];
    int own, n;
    MPI_Comm_rank(mpi, &own);
    MPI_Comm_size(mpi, &n);
    if (id.internal[0] != 1 || config->blocking != 0 || own != rank || n != ranks)
        return ncclInvalidArgument;
    *out = calloc(1, sizeof **out);
    MPI_Comm_dup(mpi, &(*out)->mpi);
    return ncclInProgress;
}
static ncclResult_t async_error(ncclComm_t comm, ncclResult_t *out) {
    (void)comm;
    const int is_failing = streams_fault_now == STREAMS_ERROR || streams_fault_now == STREAMS_STUCK;
    *out = is_failing ? ncclRemoteError : ncclSuccess;
    return ncclSuccess;
}
static ncclResult_t abort_comm(ncclComm_t comm) {
    streams_aborted++;
    if (streams_fault_now == STREAMS_STUCK) pause();
    if (streams_fault_now == STREAMS_NONE) MPI_Comm_free(&comm->mpi);
    free(comm);
    return ncclSuccess;
}
static const char *error_text(ncclResult_t result) {
    return result == ncclRemoteError ? "a peer is gone" : "an error of NCCL";
}
static ncclResult_t group_start(void) {
    n_group = 0;
    return ncclSuccess;
}
static ncclResult_t add(message m, ncclDataType_t type, ncclComm_t comm, cudaStream_t s) {
    if (n_group == MOST_PARTS) return ncclInternalError;
    m.size = type == ncclBfloat16 ? 2 : 4;
    m.comm = comm->mpi;
    group[n_group++] = m;
    group_stream = s;
    return ncclSuccess;
}
static int is_on_other_host(ncclComm_t comm, int peer) {
    MPI_Group here, world;
    int own, there;
    MPI_Comm_group(comm->mpi, &here);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_rank(world, &own);
    MPI_Group_translate_ranks(here, 1, &peer, world, &there);
    MPI_Group_free(&here);
    MPI_Group_free(&world);
    return streams_host_ranks > 0 && own / streams_host_ranks != there / streams_host_ranks;
}

static ncclResult_t send_part(const void *at, size_t n, ncclDataType_t type, int peer,
                              ncclComm_t comm, cudaStream_t s) {
    if (is_on_other_host(comm, peer)) streams_between_hosts += n * (type == ncclBfloat16 ? 2 : 4);
    return add((message){.kind = SENT, .peer = peer, .from = at, .n = n}, type, comm, s);
}
static ncclResult_t receive_part(void *at, size_t n, ncclDataType_t type, int peer, ncclComm_t comm,
                                 cudaStream_t s) {
    return add((message){.kind = RECEIVED, .peer = peer, .to = at, .n = n}, type, comm, s);
}
static ncclResult_t reduce(const void *from, void *to, size_t n, ncclDataType_t type,
                           ncclRedOp_t how, int root, ncclComm_t comm, cudaStream_t s) {
    if (how != ncclSum || type != ncclFloat32) return ncclInvalidArgument;
    streams_sums++;
    return add((message){.kind = REDUCED, .peer = root, .from = from, .to = to, .n = n}, type, comm,
               s);
}
static ncclResult_t group_end(void) {
    if (n_group == 0) return ncclSuccess;
    if (busy++ && busy_stream != group_stream)
        return ncclInvalidUsage; /* one could lock the other out */
    busy_stream = group_stream;
    messages *m = calloc(1, sizeof *m + n_group * sizeof *m->list);
    m->n = n_group;
    memcpy(m->list, group, n_group * sizeof *m->list);
    streams_give(group_stream, go_on, m);
    return ncclInProgress;
}

/* Alone: the transport calls it outside of groups. */
static ncclResult_t all_reduce(const void *from, void *to, size_t n, ncclDataType_t type,
                               ncclRedOp_t how, ncclComm_t comm, cudaStream_t s) {
    if (how != ncclSum || type != ncclFloat32) return ncclInvalidArgument;
    streams_sums++;
    group_start();
    add((message){.kind = REDUCED_FOR_ALL, .from = from, .to = to, .n = n}, type, comm, s);
    return group_end();
}

int fsdp_nccl_load(fsdp_nccl *nccl) {
    streams_loaded++;
    *nccl = (fsdp_nccl){.version = version,
                        .unique_id = unique_id,
                        .init = init,
                        .async_error = async_error,
                        .abort = abort_comm,
                        .error_text = error_text,
                        .group_start = group_start,
                        .group_end = group_end,
                        .send = send_part,
                        .recv = receive_part,
                        .reduce = reduce,
                        .all_reduce = all_reduce};
    return 0;
}
