/* Instructions of the tensor cores and copies past the registers (PTX ISA: ldmatrix, mma,
 * cp.async), a function each. All threads of a warp call them together; r and c stand for thread /
 * 4 and thread % 4. */
#ifndef KERNELS_CUDA_MMA_CUH
#define KERNELS_CUDA_MMA_CUH

#include <stdint.h>

static __device__ __forceinline__ uint32_t shared_address(const void *shared) {
    return (uint32_t)__cvta_generic_to_shared(shared);
}

/* Four 8x8 matrices of bf16 in shared memory. Thread 8 i + j says where row j of matrix i begins,
 * on a multiple of 16 bytes; each thread gets the elements (r, 2 c) and (r, 2 c + 1) of all four.
 */
static __device__ __forceinline__ void load_matrices(uint32_t out[4], const uint16_t *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(shared_address(row))
                 : "memory");
}

/* The same, of the matrices transposed: elements (2 c, r) and (2 c + 1, r). */
static __device__ __forceinline__ void load_transposed(uint32_t out[4], const uint16_t *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(shared_address(row))
                 : "memory");
}

/* d[16,8] += a[16,16] b[16,8]: a and b of bf16, sums in fp32. A thread holds
 *   d  (r, 2c), (r, 2c+1) as low, (r+8, 2c), (r+8, 2c+1) as high
 *   a  (r, 2c..), (r+8, 2c..), (r, 2c+8..), (r+8, 2c+8..), two neighbours of a row in each
 *   b  (2c.., r), (2c+8.., r), two neighbours of a column in each */
static __device__ __forceinline__ void multiply_add(float low[2], float high[2],
                                                    const uint32_t a[4], const uint32_t b[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(low[0]), "+f"(low[1]), "+f"(high[0]), "+f"(high[1])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* 16 bytes from the device's memory to shared memory, both on multiples of 16; they are there when
 * the thread that asked has waited. */
static __device__ __forceinline__ void copy_16(void *shared, const void *global) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 :
                 : "r"(shared_address(shared)), "l"(global)
                 : "memory");
}

static __device__ __forceinline__ void copies_wait() {
    asm volatile("cp.async.wait_all;" : : : "memory");
}

#endif
