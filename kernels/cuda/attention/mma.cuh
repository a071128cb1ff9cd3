/* Functions for PTX instructions that CUDA C++ does not offer: instructions of the tensor cores,
 * copies that bypass the registers, and others (PTX ISA: ldmatrix, mma, cp.async, cvt, ex2). All
 * threads of a warp must call the functions for matrices together. Below, r stands for thread / 4
 * and c for thread % 4, where `thread` is a thread's number in its warp.
 *
 * device.cuh is included before the guard. In the tests, it includes an emulator of CUDA, which
 * defines these functions for the host. The emulator also defines the guard, so this file then adds
 * nothing. */
#include "cuda/common/device.cuh"

#ifndef KERNELS_CUDA_MMA_CUH
#define KERNELS_CUDA_MMA_CUH

#include <stdint.h>

/* The address of a byte of shared memory. */
typedef uint32_t shared_at;

static __device__ __forceinline__ shared_at shared_address(const void *shared) {
    return (shared_at)__cvta_generic_to_shared(shared);
}

/* Loads four 8x8 matrices of bf16 from shared memory. Thread 8 i + j passes the address of row j of
 * matrix i, a multiple of 16 bytes. Each thread receives the elements (r, 2 c) and (r, 2 c + 1) of
 * all four matrices. */
static __device__ __forceinline__ void load_matrices(uint32_t out[4], shared_at row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(row)
                 : "memory");
}

/* Like load_matrices, but transposed: each thread receives the elements (2 c, r) and (2 c + 1,
 * r). */
static __device__ __forceinline__ void load_transposed(uint32_t out[4], shared_at row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(row)
                 : "memory");
}

/* d[16,8] += a[16,16] b[16,8]. a and b are bf16; sums are fp32. A thread holds
 *   d  (r, 2c), (r, 2c+1), (r+8, 2c), (r+8, 2c+1)
 *   a  (r, 2c..), (r+8, 2c..), (r, 2c+8..), (r+8, 2c+8..), two neighbours of a row in each
 *   b  (2c.., r), (2c+8.., r), two neighbours of a column in each */
static __device__ __forceinline__ void multiply_add(float d[4], const uint32_t a[4],
                                                    const uint32_t b[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Copies 16 bytes from the device's memory to shared memory, both aligned to 16. If `there` is
 * false, writes zeros and reads nothing. The data have arrived once the thread that started the
 * copy has called copies_wait. */
static __device__ __forceinline__ void copy_16(shared_at to, const void *from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(to), "l"(from), "r"(there ? 16 : 0)
                 : "memory");
}

/* Like copy_16, with 8 bytes. */
static __device__ __forceinline__ void copy_8(shared_at to, const void *from, bool there) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;"
                 :
                 : "r"(to), "l"(from), "r"(there ? 8 : 0)
                 : "memory");
}

/* Makes a group of the copies that this thread has started since the last call. */
static __device__ __forceinline__ void copies_close() {
    asm volatile("cp.async.commit_group;" : : : "memory");
}

/* Waits for all of this thread's groups except the last PENDING. */
template <int PENDING> static __device__ __forceinline__ void copies_wait() {
    asm volatile("cp.async.wait_group %0;" : : "n"(PENDING) : "memory");
}

static __device__ __forceinline__ void store_shared(shared_at to, uint32_t x) {
    asm volatile("st.shared.b32 [%0], %1;" : : "r"(to), "r"(x) : "memory");
}

/* Loads 16 bytes, aligned to 16. */
static __device__ __forceinline__ uint4 load_shared(shared_at from) {
    uint4 x;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "r"(from)
                 : "memory");
    return x;
}

/* Returns two numbers as bf16, rounded to nearest even; the first one is in the lower half. */
static __device__ __forceinline__ uint32_t pair_of(float low, float high) {
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

/* Returns 2^x with a relative error of at most 2^-22, or 0 if 2^x is below the smallest normal
 * number. */
static __device__ __forceinline__ float power_of_2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#endif
