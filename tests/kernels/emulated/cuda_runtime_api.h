/* The part of CUDA's runtime that the backend calls, on the host's memory: a stand-in for the
 * toolkit's header of this name, with which kernels/cuda compiles by a C and a C++ compiler and
 * runs without a GPU. Work is done as it is asked for. */
#ifndef EMULATED_CUDA_RUNTIME_API_H
#define EMULATED_CUDA_RUNTIME_API_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cudaError {
    cudaSuccess,
    cudaErrorInvalidValue,
    cudaErrorMemoryAllocation,
    cudaErrorNoDevice = 100,
    cudaErrorNotReady = 600
} cudaError_t;
typedef struct emulated_stream *cudaStream_t;
typedef struct emulated_event *cudaEvent_t;
enum cudaMemcpyKind { cudaMemcpyDefault };
enum {
    cudaEventDefault = 0,
    cudaStreamNonBlocking = 1,
    cudaHostAllocPortable = 1,
    cudaHostAllocMapped = 2
};

struct cudaDeviceProp {
    char name[256];
    int major, minor;
    size_t sharedMemPerBlockOptin;
};

cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int device);
cudaError_t cudaDeviceGetPCIBusId(char *out, int bytes, int device);
cudaError_t cudaMemGetInfo(size_t *unused, size_t *all);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaMalloc(void **out, size_t bytes);
cudaError_t cudaFree(void *memory);
cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void *memory);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemsetAsync(void *memory, int byte, size_t bytes, cudaStream_t stream);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to);
cudaError_t cudaGetLastError(void);
const char *cudaGetErrorString(cudaError_t status);

/* For tests: the device's clock, how many of the events that were recorded it has not come to, and
 * how often the host waited for it. */
extern float emulated_ms;
extern unsigned emulated_events_ahead, emulated_waits;

#ifdef __cplusplus
}
#include "language.h"
#endif
#endif
