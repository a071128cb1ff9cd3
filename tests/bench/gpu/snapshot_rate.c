/* snapshot_rate DIR [GB]: how fast a snapshot of GB (10) of a GPU's memory goes over PCIe, beside a
 * plain copy into page-locked memory in the same run, and how long a whole save into DIR takes.
 *
 * - plain copy: 64 MiB at a time, nothing else
 * - library's copies: as a save makes them, in batches of 4 MiB on its stream of low priority, each
 *   with the device's checksum; without the host's
 * - proven copies: with the host's checksum of every batch, on one core
 *
 * Exit status 1 where the library's copies reach less than 0.85 of the plain copy. 77 without a
 * GPU.
 */
#include <cuda_runtime_api.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "core/crc64.h"
#include "dcp/dcp.h"
#include "dcp/device.h"

#define TARGET 0.85
#define PLAIN_BYTES ((uint64_t)64 << 20)
#define BATCH_BYTES ((uint64_t)4 << 20)
#define BATCHES 16u /* in flight, as 64 MiB of staging hold */
#define REPEATS 3

typedef struct work {
    dcp_device *gpu;
    unsigned char *memory; /* on the GPU */
    uint64_t bytes;
    const char *dir;
} work;

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void must(int code, const char *what, const char *why) {
    if (!code) return;
    fprintf(stderr, "snapshot_rate: %s: %s\n", what, why);
    exit(3);
}

static void cuda(cudaError_t code, const char *what) {
    must((int)code, what, cudaGetErrorString(code));
}

static double plain_copy(const work *w) {
    cudaStream_t stream;
    void *pinned;
    cuda(cudaHostAlloc(&pinned, PLAIN_BYTES, cudaHostAllocPortable), "page-locked memory");
    cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
    const double start = now_s();
    for (uint64_t at = 0; at < w->bytes; at += PLAIN_BYTES)
        cuda(cudaMemcpyAsync(pinned, w->memory + at, PLAIN_BYTES, cudaMemcpyDeviceToHost, stream),
             "a copy");
    cuda(cudaStreamSynchronize(stream), "copies");
    const double took = now_s() - start;
    cudaStreamDestroy(stream);
    cudaFreeHost(pinned);
    return took;
}

/* Waits for the batch in this slot. */
static void take(const work *w, void *stream, unsigned slot, const unsigned char *batch,
                 const uint64_t *sum, int proven) {
    const dcp_device *d = w->gpu;
    int code = d->wait(d->ctx, stream, slot);
    must(code, "a batch", d->error_text(d->ctx, code));
    if (proven) must(core_crc64_raw(0, batch, BATCH_BYTES) != *sum, "a batch", "another checksum");
}

static double copies(const work *w, int proven) {
    const dcp_device *d = w->gpu;
    const uint64_t n = w->bytes / BATCH_BYTES;
    void *stream, *pinned;
    must(d->open(d->ctx, BATCHES, &stream), "open", "no stream");
    must(d->alloc_pinned(d->ctx, BATCHES * (BATCH_BYTES + sizeof(uint64_t)), &pinned), "pinned",
         "");
    unsigned char *batches = pinned;
    uint64_t *sums = (uint64_t *)(void *)(batches + BATCHES * BATCH_BYTES);
    const double start = now_s();
    for (uint64_t i = 0; i < n + BATCHES; i++) {
        const unsigned slot = (unsigned)(i % BATCHES);
        unsigned char *batch = batches + slot * BATCH_BYTES;
        if (i >= BATCHES && i - BATCHES < n) take(w, stream, slot, batch, &sums[slot], proven);
        if (i >= n) continue;
        const unsigned char *from = w->memory + i * BATCH_BYTES;
        int code = d->to_host(d->ctx, stream, batch, from, BATCH_BYTES);
        if (!code) code = d->checksum(d->ctx, stream, from, BATCH_BYTES, &sums[slot]);
        if (!code) code = d->record(d->ctx, stream, slot);
        must(code, "a batch", d->error_text(d->ctx, code));
    }
    const double took = now_s() - start;
    d->close(d->ctx, stream);
    d->free_pinned(d->ctx, pinned);
    return took;
}

static void save(const work *w) {
    const dcp_tensor t = {"/model/w", DCP_U8, 1, {w->bytes}};
    const dcp_box all = dcp_box_chunk(&t, 0, 1);
    const dcp_store_options replace = {.size = sizeof replace, .replace = 1};
    dcp_error err = {0};
    dcp_comm *self;
    dcp_state *state;
    dcp_store *store;
    dcp_saving *saving;
    must(dcp_comm_self(&self, &err) || dcp_state_create(&state, &err) ||
             dcp_state_add_device(state, &t, &all, w->gpu, w->memory, &err) ||
             dcp_store_open(self, w->dir, &replace, &store, &err),
         "a store", err.message);
    const double start = now_s();
    must(dcp_save_async(store, 1, state, NULL, NULL, &saving, &err), "a save", err.message);
    const double stall = now_s() - start;
    dcp_save_fence(saving);
    const double copied = now_s() - start;
    must(dcp_save_wait(saving, NULL, &err), "a save", err.message);
    printf("save into %s: the call %.4f s, all copied after %.3f s, durable after %.3f s (%.2f "
           "GB/s)\n",
           w->dir, stall, copied, now_s() - start, (double)w->bytes / 1e9 / (now_s() - start));
    dcp_state_destroy(state);
    dcp_store_close(store);
    dcp_comm_destroy(self);
}

static double print_rate(const char *name, const work *w, double seconds) {
    const double rate = (double)w->bytes / 1e9 / seconds;
    printf("%-16s %8.2f GB/s\n", name, rate);
    return rate;
}

static double core_min_u64(double a, double b) { return b < a ? b : a; }

int main(int argc, char **argv) {
    int devices = 0;
    dcp_error err = {0};
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "snapshot_rate DIR [GB]\n");
        return 2;
    }
    if (cudaGetDeviceCount(&devices) || !devices) {
        printf("no GPU here\n");
        return 77;
    }
    work w = {.dir = argv[1]};
    w.bytes = (uint64_t)(1e9 * (argc > 2 ? atof(argv[2]) : 10)) / PLAIN_BYTES * PLAIN_BYTES;
    must(w.bytes == 0, argv[2], "too few GB");
    must(dcp_device_cuda_create(0, NULL, &w.gpu, &err), "device", err.message);
    cuda(cudaMalloc((void **)&w.memory, w.bytes), "memory of the GPU");
    cuda(cudaMemset(w.memory, 0x5a, w.bytes), "memory of the GPU");
    cuda(cudaDeviceSynchronize(), "memory of the GPU");
    double plain_s = 1e9, copies_s = 1e9;
    for (int i = 0; i < REPEATS; i++) {
        plain_s = core_min_u64(plain_s, plain_copy(&w));
        copies_s = core_min_u64(copies_s, copies(&w, 0));
    }
    const double plain = print_rate("plain copy", &w, plain_s);
    const double share = print_rate("library's copies", &w, copies_s) / plain;
    print_rate("proven copies", &w, copies(&w, 1));
    save(&w);
    cudaFree(w.memory);
    dcp_device_cuda_destroy(w.gpu);
    printf("%.3f of the plain copy, at least %.2f: %s\n", share, TARGET,
           share >= TARGET ? "ok" : "MISSED");
    return share >= TARGET ? 0 : 1;
}
