/* What stands in kernels/cuda/attention/mma.cuh, on the host: PTX's layouts, by the threads of a
 * warp that show each other what they have. */
#ifndef KERNELS_CUDA_MMA_CUH
#define KERNELS_CUDA_MMA_CUH

typedef uintptr_t shared_at;

static inline shared_at shared_address(const void *shared) { return (shared_at)shared; }

/* Where the thread of the warp's number `lane` said that a row begins. */
static inline const uint16_t *emulated_row(const emulated_shown &shown, unsigned lane) {
    shared_at row;
    memcpy(&row, shown.of(lane), sizeof row);
    emulated_check(row % 16 == 0, "a matrix' row is not on 16 bytes");
    return (const uint16_t *)row;
}

static inline void load_matrices(uint32_t out[4], shared_at row) {
    const emulated_shown shown = emulated_exchange(&row, sizeof row);
    for (unsigned i = 0; i < 4; i++) {
        const uint16_t *from = emulated_row(shown, 8 * i + threadIdx.x % 32 / 4);
        memcpy(out + i, from + threadIdx.x % 4 * 2, sizeof *out);
    }
}

static inline void load_transposed(uint32_t out[4], shared_at row) {
    const emulated_shown shown = emulated_exchange(&row, sizeof row);
    for (unsigned i = 0; i < 4; i++) {
        uint32_t two[2];
        for (unsigned j = 0; j < 2; j++)
            two[j] = emulated_row(shown, 8 * i + threadIdx.x % 4 * 2 + j)[threadIdx.x % 32 / 4];
        out[i] = two[1] << 16 | two[0];
    }
}

static inline float emulated_half(uint32_t two, unsigned which) {
    return __uint_as_float(which ? two & 0xffff0000u : two << 16);
}

static inline void multiply_add(float d[4], const uint32_t a[4], const uint32_t b[2]) {
    const uint32_t own[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
    const emulated_shown shown = emulated_exchange(own, sizeof own);
    const unsigned r = threadIdx.x % 32 / 4, c = threadIdx.x % 4;
    for (unsigned i = 0; i < 4; i++) { /* of d: row r + 8 (i / 2), column 2 c + i % 2 */
        float sum = 0.0f;
        for (unsigned k = 0; k < 16; k++) {
            const uint32_t *left = (const uint32_t *)shown.of(4 * r + k % 8 / 2);
            const uint32_t *right = (const uint32_t *)shown.of(4 * (2 * c + i % 2) + k % 8 / 2);
            sum += emulated_half(left[i / 2 + k / 8 * 2], k % 2) *
                   emulated_half(right[4 + k / 8], k % 2);
        }
        d[i] += sum;
    }
}

static inline void emulated_copy(shared_at to, const void *from, size_t bytes, bool there) {
    emulated_check(to % bytes == 0 && (uintptr_t)from % bytes == 0, "a copy is not on its size");
    emulated_copy_later((void *)to, there ? from : NULL, bytes);
}
static inline void copy_16(shared_at to, const void *from, bool there) {
    emulated_copy(to, from, 16, there);
}
static inline void copy_8(shared_at to, const void *from, bool there) {
    emulated_copy(to, from, 8, there);
}
static inline void copies_close() { emulated_copies_close(); }
template <int PENDING> static inline void copies_wait() { emulated_copies_wait(PENDING); }

static inline void store_shared(shared_at to, uint32_t x) { memcpy((void *)to, &x, sizeof x); }

static inline uint4 load_shared(shared_at from) {
    uint4 x;
    emulated_check(from % sizeof x == 0, "a load is not on its size");
    memcpy(&x, (const void *)from, sizeof x);
    return x;
}

static inline uint32_t emulated_bf16(float x) {
    const uint32_t bits = __float_as_uint(x);
    return x == x ? (bits + 0x7fff + (bits >> 16 & 1)) >> 16 : 0x7fff;
}

static inline uint32_t pair_of(float low, float high) {
    return emulated_bf16(high) << 16 | emulated_bf16(low);
}

static inline float power_of_2(float x) {
    const float y = exp2f(x);
    return y < 0x1p-126f ? 0.0f : y;
}

#endif
