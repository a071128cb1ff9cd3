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

/* Its own reading and writing of files, through page-aligned memory. */
static int ready(void *ctx) {
    (void)ctx;
    return 0;
}

static int open_file(void *ctx, int fd, void **file) {
    (void)ctx;
    int *kept = *file = malloc(sizeof *kept);
    if (kept) *kept = fd;
    return kept ? 0 : ENOMEM;
}

static void close_file(void *ctx, void *file) {
    (void)ctx;
    free(file);
}

static int move(const int *file, int writing, unsigned char *inside, uint64_t bytes,
                uint64_t offset) {
    void *aligned = NULL;
    if (posix_memalign(&aligned, 4096, bytes)) return -ENOMEM;
    if (writing) memcpy(aligned, inside, bytes);
    const ssize_t n = writing ? pwrite(*file, aligned, bytes, (off_t)offset)
                              : pread(*file, aligned, bytes, (off_t)offset);
    if (!writing && n > 0) memcpy(inside, aligned, (size_t)n);
    free(aligned);
    return n == (ssize_t)bytes ? 0 : -EIO;
}

static int read_file(void *ctx, void *file, void *base, uint64_t at, uint64_t bytes,
                     uint64_t offset) {
    return move(file, 0, (unsigned char *)fenced_inside(ctx, base) + at, bytes, offset);
}

static int write_file(void *ctx, void *file, const void *base, uint64_t at, uint64_t bytes,
                      uint64_t offset) {
    return move(file, 1, (unsigned char *)fenced_inside(ctx, base) + at, bytes, offset);
}

static const dcp_device_files files = {ready, open_file, close_file, read_file, write_file};

int dcp_device_cuda_create(int number, void *stream, dcp_device **out, dcp_error *err) {
    (void)number, (void)err;
    dcp_device *device = malloc(sizeof *device);
    if (!device) return DCP_ERR_NO_MEMORY;
    *device = (dcp_device){.name = "fenced",
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
                           .error_text = error_text,
                           .files = &files};
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
