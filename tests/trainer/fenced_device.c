/* libdcp's side of the stand-in for a GPU (tests/kernels/fenced.c): the table of functions that
 * copies between its memory and the host's, in place of CUDA's. `stream` is the backend. */
#include <errno.h>
#include <isa-l/crc64.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../kernels/fenced.h"
#include "dcp/device.h"
#include "fsdp/transport.h"

static int alloc_pinned(void *ctx, uint64_t bytes, void **out) {
    fenced_takes(ctx, bytes);
    return posix_memalign(out, 4096, bytes ? bytes : 1);
}

static void free_pinned(void *ctx, void *memory) {
    (void)ctx;
    free(memory);
}

static int open_stream(void *ctx, unsigned events, void **stream) {
    (void)events;
    fenced_takes(ctx, 0);
    *stream = ctx;
    return 0;
}

static void close_stream(void *ctx, void *stream) { (void)ctx, (void)stream; }

static int follow(void *ctx, void *stream) {
    (void)ctx, (void)stream;
    return 0;
}

static int to_host(void *ctx, void *stream, void *pinned, const void *device, uint64_t bytes) {
    (void)stream;
    memcpy(pinned, fenced_inside(ctx, device), bytes);
    return 0;
}

static int to_device(void *ctx, void *stream, void *device, const void *pinned, uint64_t bytes) {
    (void)stream;
    memcpy(fenced_inside(ctx, device), pinned, bytes);
    return 0;
}

static int checksum(void *ctx, void *stream, const void *device, uint64_t bytes, uint64_t *pinned) {
    (void)stream;
    *pinned = ~crc64_ecma_refl(UINT64_MAX, fenced_inside(ctx, device), bytes);
    return 0;
}

static int event(void *ctx, void *stream, unsigned number) {
    (void)ctx, (void)stream, (void)number;
    return 0;
}

static const char *error_text(void *ctx, int code) {
    (void)ctx;
    return strerror(code);
}

int dcp_device_cuda_create(int number, void *stream, dcp_device **out, dcp_error *err) {
    (void)number, (void)err;
    dcp_device *device = malloc(sizeof *device);
    if (!device) return DCP_ERR_NO_MEMORY;
    *device = (dcp_device){.size = sizeof(dcp_device),
                           .name = "fenced",
                           .ctx = stream,
                           .alloc_pinned = alloc_pinned,
                           .free_pinned = free_pinned,
                           .open = open_stream,
                           .close = close_stream,
                           .follow = follow,
                           .to_host = to_host,
                           .to_device = to_device,
                           .checksum = checksum,
                           .record = event,
                           .wait = event,
                           .error_text = error_text};
    *out = device;
    return DCP_OK;
}

void dcp_device_cuda_destroy(dcp_device *device) { free(device); }

/* Its stream is none of CUDA's. */
int fsdp_transport_nccl(const fsdp_mesh *mesh, kernels *k, int shared, int sums,
                        fsdp_transport *out) {
    (void)mesh, (void)k, (void)shared, (void)sums, (void)out;
    return 1;
}
