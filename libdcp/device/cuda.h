/* The CUDA parts of a device, between cuda.c and crc64.cu. */
#ifndef DCP_DEVICE_CUDA_H
#define DCP_DEVICE_CUDA_H

#include <cuda_runtime_api.h>

#include "device/crc64_scheme.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where the blocks of a kernel add up, in device memory; all 0 between kernels of its stream. */
typedef struct cuda_cell {
    unsigned long long sum, blocks;
} cuda_cell;

/* Launches the kernel that writes the raw CRC-64 of device memory to *pinned. `tables` and `cell`
 * are in device memory. */
cudaError_t device_cuda_crc64(const scheme_tables *tables, const void *data, uint64_t bytes,
                              cuda_cell *cell, uint64_t *pinned, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
