/* Tensors in device memory, such as a GPU's: saves from it and loads into it.
 *
 * A device is a small table of functions. dcp_device_cuda_create makes the table of an NVIDIA GPU;
 * for another kind of device the program fills in a table itself. A box whose elements are in
 * device memory is added with dcp_state_add_device instead of dcp_state_add. Nothing else changes:
 * dcp_save, dcp_save_async and dcp_load work as usual, the files are the same byte for byte, and a
 * state saved from a device can be loaded into host memory and vice versa.
 *
 * Experimental: everything is tested on a device that stands in for a GPU; the CUDA code compiles,
 * but no GPU has run it.
 *
 * A save copies device memory into page-locked staging buffers on its own stream of the lowest
 * priority while the program computes, and writes from the buffers. dcp_save_fence returns when
 * everything has been copied. At that point, the bytes that remain to be written are in the staging
 * buffers. With options->copy_bytes, dcp_save_async returns when everything has been copied. The
 * device computes a checksum of every range that it copied. The bytes that arrived must have the
 * same checksum; otherwise the save fails (DCP_ERR_DEVICE names the tensor), and the older steps
 * remain. A load verifies the stored bytes as usual, and then checks in the same way that they
 * arrived on the device. Casts take place on the host.
 *
 * Page-locked memory. A save uses options->staging_bytes minus the 16 MiB of its queue, limited to
 * 128 MiB and to what the boxes need, but at least 8 MiB. The memory is allocated by the first
 * save, or by dcp_save_prepare, and freed when the store is closed or the device fails. The stores
 * of a list (dcp/tiers.h) share it. With options->copy_bytes, saves use page-locked memory for the
 * whole copy as well, starting with the first such save. A load uses 16 MiB during the call.
 *
 *     dcp_device *gpu;
 *     dcp_device_cuda_create(local_rank, compute_stream, &gpu, &err);
 *     dcp_state_add_device(state, &weight, &box, gpu, weight_on_gpu, &err); // and so on
 *     while (train(compute_stream)) {                // the optimizer's kernels have been launched
 *         dcp_save_async(store, step, state, json, NULL, &saving, &err); // starts after them
 *         forward_and_backward(compute_stream);      // reads the weights while they are copied
 *         dcp_save_fence(saving);                    // all copied: weights may change now
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

/* A device's functions. Initialize the struct with DCP_DEVICE_INIT; all members are required.
 * Functions that return an int return 0, or an error code of the device that error_text explains.
 * Each stream is used by one thread at a time, but `ctx` may be used by several threads
 * simultaneously. Operations on one stream execute in the order in which they are started; a call
 * may come before earlier operations are complete. */
typedef struct dcp_device {
    size_t size;      /* dcp/size.h */
    const char *name; /* used in messages: "cuda:0" */
    void *ctx;
    /* Allocates page-locked host memory that begins at a page boundary. */
    int (*alloc_pinned)(void *ctx, uint64_t bytes, void **out);
    void (*free_pinned)(void *ctx, void *memory);
    /* Opens a stream for copies, with `events` events that are numbered from 0. */
    int (*open)(void *ctx, unsigned events, void **stream);
    /* Closes the stream, after waiting for its operations. */
    void (*close)(void *ctx, void *stream);
    /* Orders all later operations of the stream after everything that the program has submitted to
     * the device so far. Called by the thread that calls dcp_save, dcp_save_async or dcp_load. */
    int (*follow)(void *ctx, void *stream);
    /* Start a copy between device memory and page-locked memory. */
    int (*to_host)(void *ctx, void *stream, void *pinned, const void *device, uint64_t bytes);
    int (*to_device)(void *ctx, void *stream, void *device, const void *pinned, uint64_t bytes);
    /* Starts to compute the checksum of device memory and to store it in *pinned: CRC-64/XZ without
     * its inversions (initial and final value 0), so the checksum of "123456789" is
     * 2b9c7ee4e2780c8a. */
    int (*checksum)(void *ctx, void *stream, const void *device, uint64_t bytes, uint64_t *pinned);
    /* record: records the event after all operations given to the stream so far; an event may be
     * recorded again. wait: returns when these operations are complete, and fails if any of them
     * failed. */
    int (*record)(void *ctx, void *stream, unsigned event);
    int (*wait)(void *ctx, void *stream, unsigned event);
    const char *(*error_text)(void *ctx, int code);
} dcp_device;
#define DCP_DEVICE_INIT DCP_SIZED(dcp_device)

/* Adds a tensor, and a box of it whose elements are in device memory. Not collective. Arguments and
 * errors are those of dcp_state_add, except:
 *   device  borrowed until the state is destroyed, and until the stores that the state was saved
 *           into are closed
 *   data    the box's elements in the device's memory, dense, row-major; borrowed until the state
 *           is destroyed. The CPU never accesses it.
 *
 * DCP_ERR_UNSUPPORTED: another box of the state is on a different device. Boxes on a device and
 * boxes in host memory may be mixed. */
DCP_API int dcp_state_add_device(dcp_state *state, const dcp_tensor *tensor, const dcp_box *box,
                                 const dcp_device *device, void *data, dcp_error *err);

/* Makes the device of a GPU. Not collective.
 *   number  the GPU's number
 *   stream  a cudaStream_t of the program, borrowed; saves and loads start after what was launched
 *           on it before the call. NULL: the legacy default stream.
 *
 * The checksum kernels have priority 0, which is CUDA's lowest and its default. They yield the GPU
 * to the program's kernels if these have a higher priority: create the program's streams with
 * cudaStreamCreateWithPriority and -1. Threads that call the device's functions or this function
 * have that GPU as their current device afterwards.
 * DCP_ERR_DEVICE: the GPU does not exist or fails.
 * DCP_ERR_UNSUPPORTED: this libdcp was built without CUDA. */
DCP_API int dcp_device_cuda_create(int number, void *stream, dcp_device **out, dcp_error *err);
/* Frees the device. NULL is ignored. */
DCP_API void dcp_device_cuda_destroy(dcp_device *device);

#ifdef __cplusplus
}
#endif
#endif
