/* Matrix products through oneDNN's dnnl_sgemm. oneDNN picks this processor's best kernels by
 * itself. OpenBLAS needs an environment variable set before it loads, and took Haswell's kernels on
 * AVX-512 machines (250 against 470 GFLOP/s). With AVX2 alone, however, oneDNN does not pack
 * operands where both sides of c are small: the gradient of a weight of 512 x 512 takes 53 GFLOP/s
 * there, with OpenBLAS 86, and those of a head's keys and values 62, with OpenBLAS 85. So such
 * products go to OpenBLAS.
 *
 * The same bits every time: the shape decides which of the two multiplies. Each product runs on one
 * thread, since the number of threads decides how the work is split, and with it the order of the
 * sums. ONEDNN_MAX_CPU_ISA is overruled, so the environment has no influence. OPENBLAS_CORETYPE has
 * one, since it is read before main; so the description names the kernels that OpenBLAS took. */
#include <cblas.h>
#include <limits.h>
#include <math.h>
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>

#include "cpu/cpu.h"

static const char *isa_name(dnnl_cpu_isa_t isa) {
    switch (isa) {
    case dnnl_cpu_isa_sse41:
        return "sse41";
    case dnnl_cpu_isa_avx:
        return "avx";
    case dnnl_cpu_isa_avx2:
        return "avx2";
    case dnnl_cpu_isa_avx2_vnni:
        return "avx2_vnni";
    case dnnl_cpu_isa_avx512_core:
        return "avx512_core";
    case dnnl_cpu_isa_avx512_core_vnni:
        return "avx512_core_vnni";
    case dnnl_cpu_isa_avx512_core_bf16:
        return "avx512_core_bf16";
    case dnnl_cpu_isa_avx512_core_amx:
        return "avx512_core_amx";
    default:
        return "other";
    }
}

#if DNNL_VERSION_MAJOR < 3
static const dnnl_cpu_isa_t any_isa = dnnl_cpu_isa_all;
#else
static const dnnl_cpu_isa_t any_isa = dnnl_cpu_isa_default;
#endif

void cpu_matmul_describe(char *text, size_t size) {
    /* oneDNN refuses this after the first product, since it has chosen by then: harmless. */
    (void)dnnl_set_max_cpu_isa(any_isa);
    const dnnl_version_t *v = dnnl_version();
    char blas[24] = ""; /* "OpenBLAS 0.3.21 ..." */
    sscanf(openblas_get_config(), "%*s %23s", blas);
    snprintf(text, size, "oneDNN %d.%d.%d %s, OpenBLAS %s %s", v->major, v->minor, v->patch,
             isa_name(dnnl_get_effective_cpu_isa()), blas, openblas_get_corename());
}

static void poison(const cpu_product *p, float *c) {
    for (size_t row = 0; row < p->m; row++)
        for (size_t col = 0; col < p->n; col++) c[row * p->ldc + col] = NAN;
}

void cpu_matmul_fail(kernels *k) { ((cpu_state *)k->state)->product_failed = 1; }

static int has_avx2_alone(void) {
#ifdef __x86_64__
    return __builtin_cpu_supports("avx2") && !__builtin_cpu_supports("avx512f");
#else
    return 0;
#endif
}

/* Measured on Zen 3. Such products are gradients of a weight, or of a head's keys. */
static int suits_openblas(const cpu_product *p) {
    return p->transpose_a == 'T' && p->transpose_b == 'N' && p->depth <= INT_MAX &&
           p->depth >= 16 && p->n >= 32 && p->m * p->n <= (size_t)1 << 19 && has_avx2_alone();
}

static void multiply_by_openblas(const cpu_product *p, const float *a, const float *b, float *c) {
    openblas_set_num_threads(1);
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)p->m, (int)p->n, (int)p->depth,
                p->alpha, a, (int)p->lda, b, (int)p->ldb, p->beta, c, (int)p->ldc);
}

void cpu_matmul_run(kernels *k, const cpu_product *p, const float *a, const float *b, float *c) {
    if (!p->m || !p->n) return;
    if (suits_openblas(p)) {
        multiply_by_openblas(p, a, b, c);
        return;
    }
    omp_set_num_threads(1);
    dnnl_status_t status = dnnl_sgemm(
        p->transpose_a, p->transpose_b, (dnnl_dim_t)p->m, (dnnl_dim_t)p->n, (dnnl_dim_t)p->depth,
        p->alpha, a, (dnnl_dim_t)p->lda, b, (dnnl_dim_t)p->ldb, p->beta, c, (dnnl_dim_t)p->ldc);
    if (status == dnnl_success) return;
    poison(p, c);
    cpu_matmul_fail(k);
}

static void cpu_matmul(kernels *k, float *c, const float *a, const float *b, size_t m, size_t n,
                       size_t depth, unsigned flags) {
    int ta = (flags & KERNELS_TRANSPOSE_A) != 0, tb = (flags & KERNELS_TRANSPOSE_B) != 0;
    cpu_product p = {.transpose_a = ta ? 'T' : 'N',
                     .transpose_b = tb ? 'T' : 'N',
                     .m = m,
                     .n = n,
                     .depth = depth,
                     .alpha = 1.0f,
                     .beta = flags & KERNELS_ADD ? 1.0f : 0.0f,
                     .lda = ta ? m : depth,
                     .ldb = tb ? depth : n,
                     .ldc = n};
    cpu_matmul_run(k, &p, a, b, c);
}

void cpu_matmul_fill(kernels *k) { k->matmul = cpu_matmul; }
