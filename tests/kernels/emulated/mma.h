/* What stands in kernels/cuda/mma.cuh, on the host: PTX's layouts, by the threads of a warp that
 * show each other what they have. Copies are made when they are waited for. */
#ifndef KERNELS_CUDA_MMA_CUH
#define KERNELS_CUDA_MMA_CUH

static inline void load_matrices(uint32_t out[4], const uint16_t *row) {
    const emulated_shown shown = emulated_exchange(&row, sizeof row);
    for (unsigned i = 0; i < 4; i++) {
        const uint16_t *from;
        memcpy(&from, shown.of(8 * i + threadIdx.x % 32 / 4), sizeof from);
        emulated_check((uintptr_t)from % 16 == 0, "a matrix' row is not on 16 bytes");
        memcpy(out + i, from + threadIdx.x % 4 * 2, sizeof *out);
    }
}

static inline void load_transposed(uint32_t out[4], const uint16_t *row) {
    const emulated_shown shown = emulated_exchange(&row, sizeof row);
    for (unsigned i = 0; i < 4; i++) {
        uint32_t two[2];
        for (unsigned j = 0; j < 2; j++) {
            const uint16_t *from;
            memcpy(&from, shown.of(8 * i + threadIdx.x % 4 * 2 + j), sizeof from);
            emulated_check((uintptr_t)from % 16 == 0, "a matrix' row is not on 16 bytes");
            two[j] = from[threadIdx.x % 32 / 4];
        }
        out[i] = two[1] << 16 | two[0];
    }
}

static inline float emulated_half(uint32_t two, unsigned which) {
    return __uint_as_float(which ? two & 0xffff0000u : two << 16);
}

static inline void multiply_add(float low[2], float high[2], const uint32_t a[4],
                                const uint32_t b[2]) {
    const uint32_t own[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
    const emulated_shown shown = emulated_exchange(own, sizeof own);
    const unsigned r = threadIdx.x % 32 / 4, c = threadIdx.x % 4;
    for (unsigned i = 0; i < 4; i++) { /* of d: row r + 8 (i / 2), column 2 c + i % 2 */
        float *d = i / 2 ? high + i % 2 : low + i % 2;
        float sum = 0.0f;
        for (unsigned k = 0; k < 16; k++) {
            const uint32_t *left = (const uint32_t *)shown.of(4 * r + k % 8 / 2);
            const uint32_t *right = (const uint32_t *)shown.of(4 * (2 * c + i % 2) + k % 8 / 2);
            sum += emulated_half(left[i / 2 + k / 8 * 2], k % 2) *
                   emulated_half(right[4 + k / 8], k % 2);
        }
        *d += sum;
    }
}

static inline void copy_16(void *shared, const void *global) {
    emulated_check((uintptr_t)shared % 16 == 0 && (uintptr_t)global % 16 == 0,
                   "a copy is not on 16 bytes");
    emulated_copy_later(shared, global, 16);
}

static inline void copies_wait() { emulated_copies(); }

#endif
