/* dcp_device over the CUDA runtime. Every call first makes the device the thread's own: a save's
 * thread has never seen it. Waiting sleeps instead of polling, for the cores are the program's. */
#include <stdio.h>
#include <stdlib.h>

#include "core/fail.h"
#include "dcp/device.h"
#include "device/crc64_tables.h"
#include "device/cuda.h"
#include "device/cufile.h"

typedef struct cuda_device {
    dcp_device device; /* must be first */
    int number;
    cudaStream_t program; /* borrowed */
    scheme_tables *tables;
    char name[32];
} cuda_device;

typedef struct cuda_stream {
    cudaStream_t stream;
    cudaEvent_t program; /* what the program has launched */
    cuda_cell *cell;
    unsigned n;
    cudaEvent_t events[];
} cuda_stream;

static cudaError_t enter(void *ctx) { return cudaSetDevice(((const cuda_device *)ctx)->number); }

int cuda_enter(void *ctx) { return (int)enter(ctx); }

static int alloc_pinned(void *ctx, uint64_t bytes, void **out) {
    cudaError_t code = enter(ctx);
    return (int)(code ? code : cudaHostAlloc(out, bytes, cudaHostAllocPortable));
}

static void free_pinned(void *ctx, void *memory) {
    if (!enter(ctx)) cudaFreeHost(memory);
}

static void close_stream(void *ctx, void *stream) {
    cuda_stream *s = stream;
    if (enter(ctx)) return;
    if (s->stream) cudaStreamSynchronize(s->stream);
    for (unsigned i = 0; i < s->n; i++)
        if (s->events[i]) cudaEventDestroy(s->events[i]);
    if (s->program) cudaEventDestroy(s->program);
    if (s->stream) cudaStreamDestroy(s->stream);
    cudaFree(s->cell);
    free(s);
}

/* cudaMalloc beside the program's own kernels waits for them: so once a stream, not once a copy. */
static cudaError_t fill_stream(cuda_stream *s) {
    const unsigned flags = cudaEventDisableTiming;
    int lowest, highest;
    cudaError_t code = cudaDeviceGetStreamPriorityRange(&lowest, &highest);
    if (!code) code = cudaStreamCreateWithPriority(&s->stream, cudaStreamNonBlocking, lowest);
    if (!code) code = cudaEventCreateWithFlags(&s->program, flags);
    for (unsigned i = 0; i < s->n && !code; i++)
        code = cudaEventCreateWithFlags(&s->events[i], flags | cudaEventBlockingSync);
    if (!code) code = cudaMalloc((void **)&s->cell, sizeof *s->cell);
    return code ? code : cudaMemsetAsync(s->cell, 0, sizeof *s->cell, s->stream);
}

static int open_stream(void *ctx, unsigned events, void **out) {
    cudaError_t code = enter(ctx);
    if (code) return (int)code;
    cuda_stream *s = calloc(1, sizeof *s + events * sizeof *s->events);
    if (!s) return (int)cudaErrorMemoryAllocation;
    s->n = events;
    code = fill_stream(s);
    if (code)
        close_stream(ctx, s);
    else
        *out = s;
    return (int)code;
}

static int follow(void *ctx, void *stream) {
    cuda_stream *s = stream;
    cudaError_t code = enter(ctx);
    if (!code) code = cudaEventRecord(s->program, ((const cuda_device *)ctx)->program);
    return (int)(code ? code : cudaStreamWaitEvent(s->stream, s->program, 0));
}

static int copy(void *ctx, const cuda_stream *s, void *to, const void *from, uint64_t bytes,
                enum cudaMemcpyKind kind) {
    cudaError_t code = enter(ctx);
    return (int)(code ? code : cudaMemcpyAsync(to, from, bytes, kind, s->stream));
}

static int to_host(void *ctx, void *stream, void *pinned, const void *device, uint64_t bytes) {
    return copy(ctx, stream, pinned, device, bytes, cudaMemcpyDeviceToHost);
}

static int to_device(void *ctx, void *stream, void *device, const void *pinned, uint64_t bytes) {
    return copy(ctx, stream, device, pinned, bytes, cudaMemcpyHostToDevice);
}

static int checksum(void *ctx, void *stream, const void *device, uint64_t bytes, uint64_t *pinned) {
    const cuda_stream *s = stream;
    cudaError_t code = enter(ctx);
    if (code) return (int)code;
    const scheme_tables *tables = ((const cuda_device *)ctx)->tables;
    return (int)cuda_crc64(tables, device, bytes, s->cell, pinned, s->stream);
}

static int record(void *ctx, void *stream, unsigned event) {
    const cuda_stream *s = stream;
    cudaError_t code = enter(ctx);
    return (int)(code ? code : cudaEventRecord(s->events[event], s->stream));
}

static int wait_for(void *ctx, void *stream, unsigned event) {
    const cuda_stream *s = stream;
    cudaError_t code = enter(ctx);
    return (int)(code ? code : cudaEventSynchronize(s->events[event]));
}

static const char *error_text(void *ctx, int code) {
    (void)ctx;
    const char *text = cufile_error_text(code);
    return text ? text : cudaGetErrorString((cudaError_t)code);
}

static cudaError_t fill_tables(cuda_device *d) {
    scheme_tables tables;
    cudaError_t code = cudaSetDevice(d->number);
    scheme_tables_fill(&tables);
    if (!code) code = cudaMalloc((void **)&d->tables, sizeof tables);
    return code ? code : cudaMemcpy(d->tables, &tables, sizeof tables, cudaMemcpyHostToDevice);
}

int dcp_device_cuda_create(int number, void *stream, dcp_device **out, dcp_error *err) {
    if (!out) return core_fail(err, DCP_ERR_ARG, "dcp_device_cuda_create: out is NULL");
    cuda_device *d = calloc(1, sizeof *d);
    if (!d) return core_fail_memory(err, sizeof *d);
    *d = (cuda_device){.device = {.name = d->name,
                                  .ctx = d,
                                  .alloc_pinned = alloc_pinned,
                                  .free_pinned = free_pinned,
                                  .open = open_stream,
                                  .close = close_stream,
                                  .follow = follow,
                                  .to_host = to_host,
                                  .to_device = to_device,
                                  .checksum = checksum,
                                  .record = record,
                                  .wait = wait_for,
                                  .error_text = error_text,
                                  .files = cufile_files()},
                       .number = number,
                       .program = stream};
    snprintf(d->name, sizeof d->name, "cuda:%d", number);
    cudaError_t code = fill_tables(d);
    if (code) {
        int status = core_fail(err, DCP_ERR_DEVICE, "%s: %s", d->name, cudaGetErrorString(code));
        dcp_device_cuda_destroy(&d->device);
        return status;
    }
    *out = &d->device;
    return DCP_OK;
}

void dcp_device_cuda_destroy(dcp_device *device) {
    cuda_device *d = (cuda_device *)device;
    if (!d) return;
    if (d->tables && !enter(d)) cudaFree(d->tables);
    free(d);
}
