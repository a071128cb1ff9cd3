/* The scheme of crc64_scheme.h: each block of threads handles a block of words. The last block to
 * end writes the sum and clears the cell. The blocks add to the sum by an integer XOR, so the
 * result does not depend on their order. */
#include "device/crc64_scheme.h"

__global__ void __launch_bounds__(SCHEME_THREADS)
    crc64_kernel(const scheme_tables *tables, const void *data, uint64_t bytes,
                 device_crc64_cell *cell, unsigned long long *out) {
    __shared__ uint64_t row[8][256];
    __shared__ uint64_t joined[SCHEME_THREADS];
    const unsigned t = threadIdx.x;
    const scheme_range r = device_crc64_range_of(data, bytes);
    for (unsigned k = 0; k < 8; k++) row[k][t] = tables->row[k][t];
    __syncthreads();
    if (blockIdx.x < r.blocks) {
        joined[t] = device_crc64_thread(row, &r, blockIdx.x, t);
        for (int level = 0; 1u << level < SCHEME_THREADS; level++) {
            const unsigned distance = 1u << level;
            __syncthreads();
            if (t % (2 * distance) == 0)
                joined[t] = device_crc64_join(tables, joined[t], joined[t + distance], level);
        }
    }
    if (t) return;
    unsigned long long share = 0;
    if (blockIdx.x < r.blocks) share = device_crc64_block(tables, &r, blockIdx.x, joined[0]);
    if (blockIdx.x == 0) share ^= device_crc64_tail(&r);
    atomicXor(&cell->sum, share);
    __threadfence();
    if (atomicAdd(&cell->blocks, 1ULL) + 1 < gridDim.x) return;
    *(volatile unsigned long long *)out = atomicExch(&cell->sum, 0ULL);
    cell->blocks = 0;
}

extern "C" cudaError_t device_crc64_kernel_launch(const scheme_tables *tables, const void *data,
                                                  uint64_t bytes, device_crc64_cell *cell,
                                                  uint64_t *pinned, cudaStream_t stream) {
    const uint64_t blocks = device_crc64_range_of(data, bytes).blocks;
    if (blocks > 0x7fffffffULL) return cudaErrorInvalidValue; /* 128 TiB */
    cudaLaunchConfig_t config = {}; /* not <<< >>>, whose error may come from an earlier call */
    config.gridDim = dim3(blocks ? (unsigned)blocks : 1u);
    config.blockDim = dim3(SCHEME_THREADS);
    config.stream = stream;
    return cudaLaunchKernelEx(&config, crc64_kernel, tables, data, bytes, cell,
                              (unsigned long long *)pinned);
}
