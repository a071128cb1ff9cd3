/* Tensors in a device's memory, a GPU's for example: saved from there and loaded to there.
 *
 * A device is a small table of functions. dcp_device_cuda_create makes that of an NVIDIA GPU; for
 * another kind of device the program fills one in itself. A box whose elements lie on the device
 * is added by dcp_state_add_device instead of dcp_state_add; nothing else changes: the same
 * dcp_save, dcp_save_async and dcp_load, the same files byte for byte, and what was saved from a
 * device loads into memory and the other way round.
 *
 * Experimental: all of it is tested on a device that stands in for a GPU; the CUDA code has been
 * compiled, and no GPU has run it.
 *
 * A save copies device memory into page-locked staging buffers on a stream of its own of the lowest
 * priority, while the program computes, and writes from there. dcp_save_fence returns when all has
 * been copied, whether it is written or not: no more than the staging buffers hold is left to be
 * written then. With options->copy_bytes dcp_save_async returns when all has been copied. The
 * device takes a checksum of every range that it copied; what arrived must have the same one, or
 * the save fails (DCP_ERR_DEVICE names the tensor) and the older steps stay. A load proves the
 * stored bytes as ever, and then in the same way that they arrived on the device. What it casts is
 * cast on the host.
 *
 * Page-locked memory: of a save options->staging_bytes less the 16 MiB of its queue, at least 8 MiB
 * and at most 128 MiB or what the boxes take; from the first save, or dcp_save_prepare, until the
 * store is closed or the device fails. The stores of a list (dcp/tiers.h) share it. Besides, with
 * options->copy_bytes, as much as is copied, from the first such save. Of a load 16 MiB, for the
 * time of the call.
 *
 *     dcp_device *gpu;
 *     dcp_device_cuda_create(local_rank, compute_stream, &gpu, &err);
 *     dcp_state_add_device(state, &weight, &box, gpu, weight_on_gpu, &err); // and so on
 *     while (train(compute_stream)) {                // the optimizer's kernels have been launched
 *         dcp_save_async(store, step, state, json, NULL, &saving, &err); // begins behind them
 *         forward_and_backward(compute_stream);      // reads weights, meanwhile they are copied
 *         dcp_save_fence(saving);                    // all is copied: the update may change it
 *         update(compute_stream);
 *         dcp_save_wait(saving, NULL, &err);         // published and durable
 *     }
 *     dcp_state_destroy(state);
 *     dcp_store_close(store);
 *     dcp_device_cuda_destroy(gpu);                  // last */
#ifndef DCP_DEVICE_H
#define DCP_DEVICE_H

#include "dcp/size.h"
#include "dcp/state.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Made by DCP_DEVICE_INIT; all members are required. Those that return an int return 0, or a code
 * of the device's own that error_text explains. Streams are used by one thread at a time, `ctx` by
 * several at once. What is begun on one stream happens in that order; a later call may be made
 * before an earlier one is done. */
typedef struct dcp_device {
    size_t size;      /* dcp/size.h */
    const char *name; /* for messages: "cuda:0" */
    void *ctx;
    /* Page-locked host memory that begins on a page. */
    int (*alloc_pinned)(void *ctx, uint64_t bytes, void **out);
    void (*free_pinned)(void *ctx, void *memory);
    /* A stream for copies, and that many events for it, numbered from 0. */
    int (*open)(void *ctx, unsigned events, void **stream);
    /* Waits for what the stream is doing. */
    void (*close)(void *ctx, void *stream);
    /* What the stream does from now on comes after all that the program has given the device so
     * far. Called by the thread that calls dcp_save, dcp_save_async or dcp_load. */
    int (*follow)(void *ctx, void *stream);
    /* Begin to copy between the device's memory and page-locked memory. */
    int (*to_host)(void *ctx, void *stream, void *pinned, const void *device, uint64_t bytes);
    int (*to_device)(void *ctx, void *stream, void *device, const void *pinned, uint64_t bytes);
    /* Begins to take the checksum of device memory, and to write it to *pinned: CRC-64/XZ without
     * its inversions (initial and final value 0), so that of "123456789" is 2b9c7ee4e2780c8a. */
    int (*checksum)(void *ctx, void *stream, const void *device, uint64_t bytes, uint64_t *pinned);
    /* Records the event after all that the stream was given so far; wait returns when that is done,
     * and fails where any of it failed. An event may be recorded again. */
    int (*record)(void *ctx, void *stream, unsigned event);
    int (*wait)(void *ctx, void *stream, unsigned event);
    const char *(*error_text)(void *ctx, int code);
} dcp_device;
#define DCP_DEVICE_INIT DCP_SIZED(dcp_device)

/* dcp_state_add of a box whose elements lie in the device's memory at `data`, dense, row-major,
 * borrowed like the device until the state is destroyed. The CPU never touches `data`. The device
 * stays until stores into which the state was saved are closed, too. All of a state's boxes that
 * are on a device are on the same one, else DCP_ERR_UNSUPPORTED; other boxes may be in memory.
 * Other errors as dcp_state_add. */
DCP_API int dcp_state_add_device(dcp_state *state, const dcp_tensor *tensor, const dcp_box *box,
                                 const dcp_device *device, void *data, dcp_error *err);

/* The GPU of that number. `stream`: a cudaStream_t of the program; saves and loads begin after what
 * was launched on it before the call, NULL: on the legacy default stream. The stream is borrowed.
 * The checksums' kernels leave the GPU to its kernels where it has a higher priority than 0, CUDA's
 * lowest, which streams have unless they are told: made by cudaStreamCreateWithPriority with -1.
 * Threads that call the device's functions, this one too, have that GPU as their current one then.
 * DCP_ERR_DEVICE: there is no such GPU, or it fails. DCP_ERR_UNSUPPORTED: this libdcp was built
 * without CUDA. */
DCP_API int dcp_device_cuda_create(int number, void *stream, dcp_device **out, dcp_error *err);
/* NULL is ignored. */
DCP_API void dcp_device_cuda_destroy(dcp_device *device);

#ifdef __cplusplus
}
#endif
#endif
