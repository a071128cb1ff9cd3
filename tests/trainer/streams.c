#include "streams.h"

#include <cuda_runtime_api.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "fsdp/nccl.h"

enum { MOST_OPS = 4096, MOST_STREAMS = 32, MOST_EVENTS = 1024, MOST_PARTS = 64 };

typedef enum op_kind { OP_COPY, OP_RECORD, OP_WAIT, OP_MESSAGES, OP_WRITE, OP_CHECK } op_kind;

typedef struct event {
    struct stream *stream;   /* that recorded it last */
    unsigned recorded, done; /* times */
} event;

typedef struct message {
    int sends, peer;
    void *at;
    size_t bytes;
    MPI_Comm comm;
} message;

typedef struct op {
    op_kind kind;
    void *to;
    const void *from;
    size_t n;
    float value;
    event *event;
    unsigned time;
    message *messages;
    MPI_Request *requests; /* NULL: not begun */
} op;

typedef struct stream {
    op ops[MOST_OPS];
    size_t given, done;
} stream;

struct ncclComm {
    MPI_Comm mpi;
};

streams_fault streams_fault_now;
int streams_version, streams_loaded, streams_aborted;
MPI_Comm streams_comms[3];
int streams_n_comms;
static stream *streams[MOST_STREAMS]; /* 0: the kernels' */
static size_t n_streams;
static int failed_checks;
static message group[MOST_PARTS];
static size_t n_group;
static cudaStream_t group_stream;

static stream *make_stream(void) { return streams[n_streams++] = calloc(1, sizeof(stream)); }

void *streams_kernels(void) {
    if (!streams[0]) make_stream();
    return streams[0];
}

static op *give(void *to) {
    stream *s = to;
    if (s->given == MOST_OPS) abort();
    return &s->ops[s->given++];
}

void streams_write(float *at, size_t n, float value) {
    *give(streams_kernels()) = (op){.kind = OP_WRITE, .to = at, .n = n, .value = value};
}

void streams_check(const float *at, size_t n, float value) {
    *give(streams_kernels()) = (op){.kind = OP_CHECK, .from = at, .n = n, .value = value};
}

static int exchange_messages(op *o) {
    int done;
    if (!o->requests) {
        o->requests = calloc(o->n, sizeof *o->requests);
        for (size_t i = 0; i < o->n; i++) {
            const message *m = &o->messages[i];
            if (m->sends)
                MPI_Isend(m->at, (int)m->bytes, MPI_BYTE, m->peer, 0, m->comm, &o->requests[i]);
            else
                MPI_Irecv(m->at, (int)m->bytes, MPI_BYTE, m->peer, 0, m->comm, &o->requests[i]);
        }
    }
    MPI_Testall((int)o->n, o->requests, &done, MPI_STATUSES_IGNORE);
    return done && streams_fault_now != STREAMS_SILENT;
}

static void advance(stream *s);

/* Nonzero where it is done. */
static int perform(op *o) {
    float *to = o->to;
    const float *from = o->from;
    switch (o->kind) {
    case OP_COPY:
        memcpy(o->to, o->from, o->n);
        return 1;
    case OP_RECORD:
        o->event->done = o->time;
        return 1;
    case OP_WAIT:
        if (o->event->done < o->time) advance(o->event->stream);
        return o->event->done >= o->time;
    case OP_MESSAGES:
        return exchange_messages(o);
    case OP_WRITE:
        for (size_t i = 0; i < o->n; i++) to[i] = o->value + (float)i;
        return 1;
    case OP_CHECK:
        for (size_t i = 0; i < o->n; i++) failed_checks += from[i] != o->value + (float)i;
        return 1;
    }
    return 1;
}

static void advance(stream *s) {
    while (s->done < s->given && perform(&s->ops[s->done])) s->done++;
}

int streams_drain(void) {
    int left = 1;
    while (left) {
        left = 0;
        for (size_t i = 0; i < n_streams; i++) {
            advance(streams[i]);
            left |= streams[i]->done < streams[i]->given;
        }
    }
    return failed_checks;
}

/* The parts of CUDA that a transport uses. */
const char *cudaGetErrorString(cudaError_t error) { return error ? "CUDA failed" : "no error"; }
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    *least = *greatest = 0;
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority) {
    (void)flags, (void)priority;
    streams_kernels();
    *out = (cudaStream_t)make_stream();
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t s) {
    (void)s;
    return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags) {
    static event events[MOST_EVENTS];
    static size_t n;
    (void)flags;
    if (n == MOST_EVENTS) return cudaErrorMemoryAllocation;
    *out = (cudaEvent_t)&events[n++];
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t e) {
    (void)e;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t out, cudaStream_t s) {
    event *e = (event *)out;
    e->stream = (stream *)s;
    *give(s) = (op){.kind = OP_RECORD, .event = e, .time = ++e->recorded};
    return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t out, unsigned flags) {
    event *e = (event *)out;
    (void)flags;
    if (e->stream == (stream *)s) return cudaSuccess;
    *give(s) = (op){.kind = OP_WAIT, .event = e, .time = e->recorded};
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t out) {
    const event *e = (const event *)out;
    for (size_t i = 1; i < n_streams; i++) advance(streams[i]);
    return e->done == e->recorded ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t s) {
    if (kind != cudaMemcpyDefault) return cudaErrorInvalidValue;
    *give(s) = (op){.kind = OP_COPY, .to = to, .from = from, .n = bytes};
    return cudaSuccess;
}

/* The parts of NCCL. */
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
static ncclResult_t add(int sends, void *at, size_t n, ncclDataType_t type, int peer,
                        ncclComm_t comm, cudaStream_t s) {
    const size_t size = type == ncclBfloat16 ? 2 : 4;
    if (n_group == MOST_PARTS) return ncclInternalError;
    group[n_group++] = (message){sends, peer, at, n * size, comm->mpi};
    group_stream = s;
    return ncclSuccess;
}
static ncclResult_t send_part(const void *at, size_t n, ncclDataType_t type, int peer,
                              ncclComm_t comm, cudaStream_t s) {
    return add(1, (void *)at, n, type, peer, comm, s);
}
static ncclResult_t receive_part(void *at, size_t n, ncclDataType_t type, int peer, ncclComm_t comm,
                                 cudaStream_t s) {
    return add(0, at, n, type, peer, comm, s);
}
static ncclResult_t group_end(void) {
    if (n_group == 0) return ncclSuccess;
    message *list = malloc(n_group * sizeof *list);
    memcpy(list, group, n_group * sizeof *list);
    *give(group_stream) = (op){.kind = OP_MESSAGES, .messages = list, .n = n_group};
    return ncclInProgress;
}

int nccl_load(nccl_library *nccl) {
    streams_loaded++;
    *nccl = (nccl_library){.version = version,
                           .unique_id = unique_id,
                           .init = init,
                           .async_error = async_error,
                           .abort = abort_comm,
                           .error_text = error_text,
                           .group_start = group_start,
                           .group_end = group_end,
                           .send = send_part,
                           .recv = receive_part};
    return 0;
}

/* Of the C library and of MPI: an alarm for tests, and a clock that runs. */
unsigned alarm(unsigned seconds) {
    const struct itimerval soon = {.it_value = {.tv_usec = 10000 * (long)(seconds > 0)}};
    setitimer(ITIMER_REAL, &soon, NULL);
    return 0;
}

double MPI_Wtime(void) { return PMPI_Wtime() * (streams_fault_now == STREAMS_SILENT ? 10000 : 1); }
