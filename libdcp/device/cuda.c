/* dcp_device over the CUDA runtime. CUDA has a current device per thread, and a save runs in its
 * own thread, so every call sets the device first. Waiting sleeps instead of polling, to leave the
 * cores to the program.
 *
 * A stream here consists of two CUDA streams: one for copies to the host, one for everything else.
 * A checksum's kernel waits until the program's kernels leave room for it. Copies on the same
 * stream would wait for that kernel, although the copy engine is free. Copies to the host and
 * checksums only read device memory, so their order does not matter. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/fail.h"
#include "dcp/device.h"
#include "device/crc64_scheme.h"

typedef struct cuda_device {
    dcp_device device; /* must be first */
    int number;
    cudaStream_t program; /* borrowed */
    scheme_tables *tables;
    char name[32];
} cuda_device;

enum { TO_HOST, OTHERS, STREAMS };

typedef struct cuda_stream {
    cudaStream_t streams[STREAMS];
    bool is_behind[STREAMS]; /* this stream's next copy must follow the other stream's operations */
    cudaEvent_t before;      /* for waiting on the program or on the other stream */
    device_crc64_cell *cell;
    unsigned n;
    cudaEvent_t events[][STREAMS];
} cuda_stream;

static cudaError_t enter(void *ctx) { return cudaSetDevice(((const cuda_device *)ctx)->number); }

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
    for (int k = 0; k < STREAMS; k++) {
        if (s->streams[k]) cudaStreamSynchronize(s->streams[k]);
        for (unsigned i = 0; i < s->n; i++)
            if (s->events[i][k]) cudaEventDestroy(s->events[i][k]);
        if (s->streams[k]) cudaStreamDestroy(s->streams[k]);
    }
    if (s->before) cudaEventDestroy(s->before);
    cudaFree(s->cell);
    free(s);
}

static cudaError_t make_stream(cuda_stream *s, int k) {
    const unsigned flags = cudaEventDisableTiming | cudaEventBlockingSync;
    int lowest, highest;
    cudaError_t code = cudaDeviceGetStreamPriorityRange(&lowest, &highest);
    if (!code) code = cudaStreamCreateWithPriority(&s->streams[k], cudaStreamNonBlocking, lowest);
    for (unsigned i = 0; i < s->n && !code; i++)
        code = cudaEventCreateWithFlags(&s->events[i][k], flags);
    return code;
}

/* Allocates the cell once per stream, not once per checksum, since cudaMalloc waits for the
 * program's kernels. */
static cudaError_t fill_stream(cuda_stream *s) {
    cudaError_t code = cudaSuccess;
    for (int k = 0; k < STREAMS && !code; k++) code = make_stream(s, k);
    if (!code) code = cudaEventCreateWithFlags(&s->before, cudaEventDisableTiming);
    if (!code) code = cudaMalloc((void **)&s->cell, sizeof *s->cell);
    return code ? code : cudaMemsetAsync(s->cell, 0, sizeof *s->cell, s->streams[OTHERS]);
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
    if (!code) code = cudaEventRecord(s->before, ((const cuda_device *)ctx)->program);
    for (int k = 0; k < STREAMS && !code; k++)
        code = cudaStreamWaitEvent(s->streams[k], s->before, 0);
    return (int)code;
}

/* Copies on stream k. If the other stream has copied since this stream's last copy, first waits for
 * the other's operations: copies in the two directions may write and read the same memory. */
static int copy(void *ctx, cuda_stream *s, int k, void *to, const void *from, uint64_t bytes) {
    cudaError_t code = enter(ctx);
    if (!code && s->is_behind[k]) {
        code = cudaEventRecord(s->before, s->streams[!k]);
        if (!code) code = cudaStreamWaitEvent(s->streams[k], s->before, 0);
    }
    s->is_behind[k] = false;
    s->is_behind[!k] = true;
    if (code) return (int)code;
    const enum cudaMemcpyKind kind = k == TO_HOST ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice;
    return (int)cudaMemcpyAsync(to, from, bytes, kind, s->streams[k]);
}

static int to_host(void *ctx, void *stream, void *pinned, const void *device, uint64_t bytes) {
    return copy(ctx, stream, TO_HOST, pinned, device, bytes);
}

static int to_device(void *ctx, void *stream, void *device, const void *pinned, uint64_t bytes) {
    return copy(ctx, stream, OTHERS, device, pinned, bytes);
}

static int checksum(void *ctx, void *stream, const void *device, uint64_t bytes, uint64_t *pinned) {
    const cuda_stream *s = stream;
    cudaError_t code = enter(ctx);
    if (code) return (int)code;
    const scheme_tables *tables = ((const cuda_device *)ctx)->tables;
    return (int)device_crc64_kernel_launch(tables, device, bytes, s->cell, pinned,
                                           s->streams[OTHERS]);
}

static int record(void *ctx, void *stream, unsigned event) {
    const cuda_stream *s = stream;
    cudaError_t code = enter(ctx);
    for (int k = 0; k < STREAMS && !code; k++)
        code = cudaEventRecord(s->events[event][k], s->streams[k]);
    return (int)code;
}

static int wait_for(void *ctx, void *stream, unsigned event) {
    const cuda_stream *s = stream;
    cudaError_t code = enter(ctx);
    for (int k = 0; k < STREAMS && !code; k++) code = cudaEventSynchronize(s->events[event][k]);
    return (int)code;
}

static const char *error_text(void *ctx, int code) {
    (void)ctx;
    return cudaGetErrorString((cudaError_t)code);
}

static cudaError_t fill_tables(cuda_device *d) {
    scheme_tables tables;
    cudaError_t code = cudaSetDevice(d->number);
    device_crc64_tables_fill(&tables);
    if (!code) code = cudaMalloc((void **)&d->tables, sizeof tables);
    if (!code) code = cudaMemcpy(d->tables, &tables, sizeof tables, cudaMemcpyHostToDevice);
    /* a copy from pageable memory may return before all bytes have arrived, and our streams don't
     * wait for it */
    return code ? code : cudaStreamSynchronize(cudaStreamLegacy);
}

int dcp_device_cuda_create(int number, void *stream, dcp_device **out, dcp_error *err) {
    if (!out) return core_fail(err, DCP_ERR_ARG, "dcp_device_cuda_create: out is NULL");
    cuda_device *d = calloc(1, sizeof *d);
    if (!d) return core_fail_memory(err, sizeof *d);
    *d = (cuda_device){.device = {.size = sizeof d->device,
                                  .name = d->name,
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
                                  .error_text = error_text},
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
