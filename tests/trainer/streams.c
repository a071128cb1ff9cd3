#include "streams.h"

#include <cuda_runtime_api.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

enum { MOST_OPS = 4096, MOST_STREAMS = 32, MOST_EVENTS = 1024 };

typedef enum op_kind { OP_COPY, OP_RECORD, OP_WAIT, OP_OTHER, OP_WRITE, OP_CHECK } op_kind;

typedef struct event {
    struct stream *stream;   /* that recorded it last */
    unsigned recorded, done; /* times */
} event;

typedef struct op {
    op_kind kind;
    void *to;
    const void *from;
    size_t n;
    float value;
    event *event;
    unsigned time;
    int (*go_on)(void *ctx);
    void *ctx;
} op;

typedef struct stream {
    op ops[MOST_OPS];
    size_t given, done;
} stream;

streams_fault streams_fault_now;
static stream *streams[MOST_STREAMS]; /* 0: the kernels' */
static size_t n_streams;
static int failed_checks;

static stream *make_stream(void) { return streams[n_streams++] = calloc(1, sizeof(stream)); }

void *streams_kernels(void) {
    if (!streams[0]) make_stream();
    return streams[0];
}

static op *give(void *to) {
    stream *s = to;
    if (s->done == s->given) s->done = s->given = 0;
    if (s->given == MOST_OPS) abort();
    return &s->ops[s->given++];
}

void streams_give(void *to, int (*go_on)(void *ctx), void *ctx) {
    *give(to) = (op){.kind = OP_OTHER, .go_on = go_on, .ctx = ctx};
}

void streams_write(float *at, size_t n, float value) {
    *give(streams_kernels()) = (op){.kind = OP_WRITE, .to = at, .n = n, .value = value};
}

void streams_check(const float *at, size_t n, float value) {
    *give(streams_kernels()) = (op){.kind = OP_CHECK, .from = at, .n = n, .value = value};
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
    case OP_OTHER:
        return o->go_on(o->ctx);
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

/* Replace functions of the C library and of MPI: an alarm for tests, and a clock that runs. */
unsigned alarm(unsigned seconds) {
    const struct itimerval soon = {.it_value = {.tv_usec = 10000 * (long)(seconds > 0)}};
    setitimer(ITIMER_REAL, &soon, NULL);
    return 0;
}

double MPI_Wtime(void) { return PMPI_Wtime() * (streams_fault_now == STREAMS_SILENT ? 10000 : 1); }
