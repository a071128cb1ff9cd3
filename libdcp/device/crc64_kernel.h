/* The device's checksum of a range of its memory, as a kernel of CUDA. */
#pragma once

#include <cuda_runtime_api.h>

#include "device/crc64_scheme.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where the blocks of a kernel add up, in device memory; all 0 between kernels of its stream. */
typedef struct device_crc64_cell {
    unsigned long long sum, blocks;
} device_crc64_cell;

/* Launches the kernel that writes the raw CRC-64 of device memory to *pinned. `tables` and `cell`
 * are in device memory. */
cudaError_t device_crc64_kernel_launch(const scheme_tables *tables, const void *data,
                                       uint64_t bytes, device_crc64_cell *cell, uint64_t *pinned,
                                       cudaStream_t stream);

#ifdef __cplusplus
}
#endif
