/* Elementwise kernels: outputs[n] = f(inputs[n]), by accesses of 16 bytes (of 8 bytes for arrays of
 * bf16 if other arrays are fp32). An output may be the same array as an input. */
#pragma once

#include "cuda/common/shares.cuh"

template <typename In, typename Out, unsigned INS, unsigned OUTS> struct map_arrays {
    const In *in[INS];
    Out *out[OUTS];
    size_t n;
    bool wide; /* all arrays are aligned to 16 bytes */

    static constexpr unsigned EACH = 16 / (sizeof(In) > sizeof(Out) ? sizeof(In) : sizeof(Out));
    /* A thread accesses about 64 bytes at a time, and at most 16 elements. */
    static constexpr unsigned UNITS = INS >= 3 ? 1 : EACH == 8 ? 2 / INS : 4 / INS;
    static constexpr unsigned CHUNK = THREADS * UNITS * EACH;
};

/* A thread reads all of its elements before it writes. Each element is computed by the same
 * instructions, whichever way it was read, so the bits of a tensor do not depend on how it is
 * divided. */
template <typename F, typename In, typename Out, unsigned INS, unsigned OUTS>
static __global__ void __launch_bounds__(THREADS)
    map_kernel(map_arrays<In, Out, INS, OUTS> a, F f) {
    typedef map_arrays<In, Out, INS, OUTS> A;
    const size_t at = (size_t)blockIdx.x * A::CHUNK;
    const unsigned n = (unsigned)min(a.n - at, (size_t)A::CHUNK);
    const bool wide = a.wide && n % A::EACH == 0;
    float in[INS][A::UNITS][A::EACH], out[OUTS][A::UNITS][A::EACH];
#pragma unroll
    for (unsigned i = 0; i < INS; i++)
        load_share<THREADS>(in[i], a.in[i] + at, threadIdx.x, n, wide);
#pragma unroll
    for (unsigned u = 0; u < A::UNITS; u++)
#pragma unroll
        for (unsigned e = 0; e < A::EACH; e++) {
            float x[INS], y[OUTS];
            for (unsigned i = 0; i < INS; i++) x[i] = in[i][u][e];
            f(x, y);
            for (unsigned o = 0; o < OUTS; o++) out[o][u][e] = y[o];
        }
#pragma unroll
    for (unsigned o = 0; o < OUTS; o++)
        store_share<THREADS>(a.out[o] + at, out[o], threadIdx.x, n, wide);
}

template <typename F, typename In, typename Out, unsigned INS, unsigned OUTS>
static void map(kernels *k, map_arrays<In, Out, INS, OUTS> a, F f) {
    a.wide = true;
    for (const In *in : a.in) a.wide = a.wide && aligned(in);
    for (const Out *out : a.out) a.wide = a.wide && aligned(out);
    LAUNCH(k, (map_kernel<F, In, Out, INS, OUTS>), pieces_of(a.n, a.CHUNK), 0, a, f);
}
