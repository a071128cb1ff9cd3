/* CUDA's runtime on the host: see cuda_runtime_api.h. */
#include <cuda_runtime_api.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

cudaError_t cudaGetDeviceCount(int *count) {
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int device) {
    (void)device;
    *out = (struct cudaDeviceProp){.major = 9, .sharedMemPerBlockOptin = (size_t)227 << 10};
    snprintf(out->name, sizeof out->name, "emulated");
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *out, int bytes, int device) {
    snprintf(out, (size_t)bytes, "0000:00:%02x.0", (unsigned)device);
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *unused, size_t *all) {
    *unused = *all = (size_t)1 << 30;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) { return device ? cudaErrorInvalidValue : cudaSuccess; }

cudaError_t cudaMalloc(void **out, size_t bytes) {
    *out = aligned_alloc(256, (bytes + 255) / 256 * 256);
    return *out ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFree(void *memory) {
    free(memory);
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags) {
    (void)flags;
    return cudaMalloc(out, bytes);
}

cudaError_t cudaFreeHost(void *memory) { return cudaFree(memory); }

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
    (void)kind, (void)stream;
    if (bytes) memcpy(to, from, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *memory, int byte, size_t bytes, cudaStream_t stream) {
    (void)stream;
    if (bytes) memset(memory, byte, bytes);
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority) {
    *out = NULL; /* 0 is the least priority, which is for what others do beside */
    return flags == cudaStreamNonBlocking && priority < 0 ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    (void)stream;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    (void)stream;
    emulated_waits++;
    emulated_events_ahead = 0;
    return cudaSuccess;
}

struct emulated_event {
    float ms;
    unsigned number; /* it was the so many-th to be recorded; 0: it was not */
};

float emulated_ms;
unsigned emulated_events_ahead, emulated_waits;
static unsigned recorded;
static cudaError_t last_error;

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags) {
    *out = calloc(1, sizeof **out);
    return *out && flags == cudaEventDefault ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    free(event);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    (void)stream;
    *event = (struct emulated_event){emulated_ms, ++recorded};
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    if (event->number + emulated_events_ahead <= recorded) return cudaSuccess;
    return last_error = cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    emulated_waits++;
    if (cudaEventQuery(event) == cudaErrorNotReady)
        emulated_events_ahead = recorded - event->number;
    return last_error = cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
    if (!from->number || cudaEventQuery(to) != cudaSuccess) return cudaErrorInvalidValue;
    *ms = to->ms - from->ms;
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void) {
    const cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

const char *cudaGetErrorString(cudaError_t status) {
    return status == cudaSuccess ? "no error" : "refused by the emulated device";
}
