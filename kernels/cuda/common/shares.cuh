/* How threads share an array, or a row of an array. A group of LANES threads processes it in spans
 * of LANES * UNITS * EACH elements. In a span, unit u of lane l is the EACH elements that start at
 * (u * LANES + l) * EACH; they are one access of 16 bytes, or of 8 bytes for 4 elements of bf16. If
 * the address does not permit such an access, a thread reads the same elements one by one. So the
 * order of sums does not depend on addresses. */
#pragma once

#include "cuda/common/device.cuh"

/* Loads a thread's elements of the n elements at x; elements past the end are 0. wide: x is aligned
 * to units, and n is a multiple of their length. */
template <unsigned LANES, unsigned UNITS, unsigned EACH, typename T>
__device__ __forceinline__ void load_share(float (&v)[UNITS][EACH], const T *x, unsigned lane,
                                           unsigned n, bool wide) {
    if (wide) {
#pragma unroll
        for (unsigned u = 0; u < UNITS; u++) {
            const unsigned i = (u * LANES + lane) * EACH;
            if (i < n)
                load_wide(v[u], x + i);
            else
                for (unsigned e = 0; e < EACH; e++) v[u][e] = 0.0f;
        }
        return;
    }
#pragma unroll
    for (unsigned u = 0; u < UNITS; u++)
#pragma unroll
        for (unsigned e = 0; e < EACH; e++) {
            const unsigned i = (u * LANES + lane) * EACH + e;
            v[u][e] = i < n ? load(x + i) : 0.0f;
        }
}

template <unsigned LANES, unsigned UNITS, unsigned EACH, typename T>
__device__ __forceinline__ void store_share(T *y, const float (&v)[UNITS][EACH], unsigned lane,
                                            unsigned n, bool wide) {
    if (wide) {
#pragma unroll
        for (unsigned u = 0; u < UNITS; u++) {
            const unsigned i = (u * LANES + lane) * EACH;
            if (i < n) store_wide(y + i, v[u]);
        }
        return;
    }
#pragma unroll
    for (unsigned u = 0; u < UNITS; u++)
#pragma unroll
        for (unsigned e = 0; e < EACH; e++) {
            const unsigned i = (u * LANES + lane) * EACH + e;
            if (i < n) store(y + i, v[u][e]);
        }
}

/* Returns true if all arrays are aligned to 16 bytes. */
template <typename... T> static bool aligned(const T *...arrays) {
    return ((reinterpret_cast<uintptr_t>(arrays) | ...) % 16) == 0;
}

/* How threads share a row. ONCE: one span holds the whole row, which therefore stays in
 * registers. */
template <unsigned L, unsigned U, bool O> struct row_shape {
    static constexpr unsigned LANES = L, UNITS = U, EACH = 4, SPAN = L * U * EACH;
    static constexpr unsigned GROUPS = THREADS / L; /* the number of rows that a block processes
                                                     * together */
    static constexpr bool ONCE = O;
};

/* A thread's elements of a span. */
template <typename W> using share = float[W::UNITS][W::EACH];

/* The row of a thread's group, and the thread's position in it. A group past the last row has no
 * elements, but its threads take part in sums. */
template <typename W> struct row_place {
    size_t row;
    unsigned lane, dim;
    bool there, wide;

    __device__ row_place(size_t row, size_t rows, unsigned dim, bool wide)
        : row(row), lane(threadIdx.x % W::LANES), dim(row < rows ? dim : 0), there(row < rows),
          wide(wide) {}

    /* Returns true if element e of unit u exists, in the span that begins at `first`. */
    __device__ __forceinline__ bool has(unsigned first, unsigned u, unsigned e) const {
        return first + (u * W::LANES + lane) * W::EACH + e < dim;
    }
    template <typename T>
    __device__ __forceinline__ void load(share<W> &v, const T *x, unsigned first) const {
        load_share<W::LANES>(v, x + first, lane, dim > first ? dim - first : 0, wide);
    }
    template <typename T>
    __device__ __forceinline__ void store(T *y, const share<W> &v, unsigned first) const {
        store_share<W::LANES>(y + first, v, lane, dim > first ? dim - first : 0, wide);
    }
};

/* Returns the row of a thread's group, if a block processes W::GROUPS rows. */
template <typename W> __device__ size_t row_of_group() {
    return (size_t)blockIdx.x * W::GROUPS + threadIdx.x / W::LANES;
}

#define FOR_SPANS(W, first, dim)                                                                   \
    for (unsigned first = 0; first < (W::ONCE ? 1u : (dim)); first += W::SPAN)
#define FOR_SHARE(W, u, e)                                                                         \
    _Pragma("unroll") for (unsigned u = 0; u < W::UNITS; u++)                                      \
        _Pragma("unroll") for (unsigned e = 0; e < W::EACH; e++)

/* Calls f with the row_shape that suits rows of `dim` elements. */
template <typename F> static void by_width(size_t dim, F f) {
    if (dim <= 64)
        f(row_shape<16, 1, true>());
    else if (dim <= 128)
        f(row_shape<32, 1, true>());
    else if (dim <= 512)
        f(row_shape<32, 4, true>());
    else if (dim <= 1024)
        f(row_shape<32, 8, true>());
    else if (dim <= 2048)
        f(row_shape<THREADS, 2, true>());
    else
        f(row_shape<THREADS, 4, false>());
}
