/* bf16: rounding, widening, and matrix products.
 *
 * On processors with instructions for products of bf16 (AVX512_BF16, AMX), oneDNN multiplies. Each
 * product creates oneDNN's primitive for its shape, and destroys it at the end; only oneDNN's own
 * cache retains the compiled code. The primitive runs on one thread, as for fp32 (see below). On
 * other processors, operands are widened to fp32, one panel at a time, and multiplied as fp32.
 * Widening is exact, and so is the product of two bf16 in fp32, so only the order of the sums
 * differs. */
#include <cblas.h>
#include <limits.h>
#include <math.h>
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/cpu.h"
#include "cpu/lanes.h"

enum { PANEL = 2048 }; /* the number of rows that are widened at a time */

CPU_CLONES static void cpu_narrow(kernels *k, uint16_t *restrict y, const float *restrict x,
                                  size_t n) {
    (void)k;
    for (size_t i = 0; i < n; i++) y[i] = bf16_of(x[i]);
}

static void cpu_narrow_on(kernels *k, void *stream, uint16_t *y, const float *x, size_t n) {
    (void)stream;
    cpu_narrow(k, y, x, n);
}

CPU_CLONES static void cpu_widen(kernels *k, float *restrict y, const uint16_t *restrict x,
                                 size_t n) {
    (void)k;
    for (size_t i = 0; i < n; i++) y[i] = bf16_wide(x[i]);
}

/* Widens in place: the n elements of bf16 are in the upper half of y's memory. Widens one stretch
 * after the other, from the beginning to the end. All elements that are still to be read lie after
 * the elements that have been written, except within the current stretch, which is therefore copied
 * first. */
static void cpu_widen_upper(kernels *k, float *y, size_t n) {
    enum { STRETCH = 512 };
    const uint16_t *from = (const uint16_t *)y + n;
    uint16_t stretch[STRETCH];
    for (size_t at = 0; at < n; at += STRETCH) {
        const size_t here = n - at < STRETCH ? n - at : STRETCH;
        memcpy(stretch, from + at, here * sizeof *stretch);
        cpu_widen(k, y + at, stretch, here);
    }
}

struct cpu_bf16 {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
};

static bool has_products(void) {
    return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_bf16) ==
           dnnl_cpu_isa_avx512_core_bf16;
}

cpu_bf16 *cpu_bf16_open(void) {
    if (!has_products()) return NULL;
    cpu_bf16 *b = calloc(1, sizeof *b);
    if (!b) return NULL;
    if (dnnl_engine_create(&b->engine, dnnl_cpu, 0) == dnnl_success &&
        dnnl_stream_create(&b->stream, b->engine, dnnl_stream_default_flags) == dnnl_success)
        return b;
    cpu_bf16_close(b);
    return NULL;
}

void cpu_bf16_close(cpu_bf16 *b) {
    if (!b) return;
    if (b->stream) dnnl_stream_destroy(b->stream);
    if (b->engine) dnnl_engine_destroy(b->engine);
    free(b);
}

enum { A, B, C, MATRICES };

/* A description of a matrix is a struct in oneDNN 2, and an object that must be destroyed in oneDNN
 * 3. */
#if DNNL_VERSION_MAJOR < 3
static dnnl_status_t describe_strided(dnnl_memory_desc_t *out, const dnnl_dims_t dims,
                                      const dnnl_dims_t strides, dnnl_data_type_t type) {
    return dnnl_memory_desc_init_by_strides(out, 2, dims, type, strides);
}

static void forget(dnnl_memory_desc_t *desc) { (void)desc; }

static dnnl_status_t place(dnnl_memory_t *out, const dnnl_memory_desc_t *desc, dnnl_engine_t engine,
                           void *data) {
    return dnnl_memory_create(out, desc, engine, data);
}

static dnnl_status_t append_sum(dnnl_post_ops_t ops) { return dnnl_post_ops_append_sum(ops, 1.0f); }

static dnnl_status_t find_product(dnnl_primitive_desc_t *out, dnnl_engine_t engine,
                                  const dnnl_memory_desc_t *desc, dnnl_primitive_attr_t attr) {
    dnnl_matmul_desc_t product;
    const dnnl_status_t status =
        dnnl_matmul_desc_init(&product, &desc[A], &desc[B], NULL, &desc[C]);
    return status ? status : dnnl_primitive_desc_create(out, &product, attr, engine, NULL);
}
#else
static dnnl_status_t describe_strided(dnnl_memory_desc_t *out, const dnnl_dims_t dims,
                                      const dnnl_dims_t strides, dnnl_data_type_t type) {
    return dnnl_memory_desc_create_with_strides(out, 2, dims, type, strides);
}

static void forget(dnnl_memory_desc_t *desc) {
    if (*desc) dnnl_memory_desc_destroy(*desc);
}

static dnnl_status_t place(dnnl_memory_t *out, const dnnl_memory_desc_t *desc, dnnl_engine_t engine,
                           void *data) {
    return dnnl_memory_create(out, *desc, engine, data);
}

static dnnl_status_t append_sum(dnnl_post_ops_t ops) {
    return dnnl_post_ops_append_sum(ops, 1.0f, 0, dnnl_data_type_undef);
}

static dnnl_status_t find_product(dnnl_primitive_desc_t *out, dnnl_engine_t engine,
                                  const dnnl_memory_desc_t *desc, dnnl_primitive_attr_t attr) {
    return dnnl_matmul_primitive_desc_create(out, engine, desc[A], desc[B], NULL, desc[C], attr);
}
#endif

/* Describes a matrix [rows,cols] in row-major order, or stored as its transpose. */
static dnnl_status_t describe_matrix(dnnl_memory_desc_t *out, size_t rows, size_t cols,
                                     bool transposed, dnnl_data_type_t type) {
    const dnnl_dims_t dims = {(dnnl_dim_t)rows, (dnnl_dim_t)cols};
    const dnnl_dims_t strides = {transposed ? 1 : (dnnl_dim_t)cols,
                                 transposed ? (dnnl_dim_t)rows : 1};
    return describe_strided(out, dims, strides, type);
}

static dnnl_status_t compile_product(dnnl_primitive_t *out, dnnl_engine_t engine,
                                     const dnnl_memory_desc_t *desc, bool add) {
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t sum = NULL;
    dnnl_primitive_desc_t found = NULL;
    dnnl_status_t status = dnnl_success;
    if (add) status = dnnl_primitive_attr_create(&attr);
    if (!status && add) status = dnnl_post_ops_create(&sum);
    if (!status && add) status = append_sum(sum);
    if (!status && add) status = dnnl_primitive_attr_set_post_ops(attr, sum);
    if (!status) status = find_product(&found, engine, desc, attr);
    if (!status) status = dnnl_primitive_create(out, found);
    if (found) dnnl_primitive_desc_destroy(found);
    if (sum) dnnl_post_ops_destroy(sum);
    if (attr) dnnl_primitive_attr_destroy(attr);
    return status;
}

static dnnl_status_t execute_product(const cpu_bf16 *on, dnnl_primitive_t product,
                                     const dnnl_memory_desc_t *desc, void *const *data) {
    static const int places[MATRICES] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
    dnnl_exec_arg_t args[MATRICES] = {{0}};
    dnnl_status_t status = dnnl_success;
    for (int i = 0; i < MATRICES; i++) {
        args[i].arg = places[i];
        if (!status) status = place(&args[i].memory, &desc[i], on->engine, data[i]);
    }
    if (!status) status = dnnl_primitive_execute(product, on->stream, MATRICES, args);
    if (!status) status = dnnl_stream_wait(on->stream);
    for (int i = 0; i < MATRICES; i++)
        if (args[i].memory) dnnl_memory_destroy(args[i].memory);
    return status;
}

static int multiply_by_dnnl(const cpu_bf16 *on, void *c, const uint16_t *a, const uint16_t *b,
                            size_t m, size_t n, size_t depth, unsigned flags) {
    void *const data[MATRICES] = {(void *)a, (void *)b, c};
    dnnl_memory_desc_t desc[MATRICES];
    memset(desc, 0, sizeof desc);
    dnnl_primitive_t product = NULL;
    omp_set_num_threads(1);
    dnnl_status_t status =
        describe_matrix(&desc[A], m, depth, (flags & KERNELS_TRANSPOSE_A) != 0, dnnl_bf16);
    if (!status)
        status = describe_matrix(&desc[B], depth, n, (flags & KERNELS_TRANSPOSE_B) != 0, dnnl_bf16);
    if (!status)
        status =
            describe_matrix(&desc[C], m, n, false, flags & KERNELS_NARROW ? dnnl_bf16 : dnnl_f32);
    if (!status) status = compile_product(&product, on->engine, desc, (flags & KERNELS_ADD) != 0);
    if (!status) status = execute_product(on, product, desc, data);
    if (product) dnnl_primitive_destroy(product);
    for (int i = 0; i < MATRICES; i++) forget(&desc[i]);
    return status != dnnl_success;
}

/* Returns memory for widened operands, or NULL if out of memory. All products use the same memory;
 * it is replaced when a product needs more. */
static float *wide_memory(kernels *k, size_t elems) {
    cpu_state *state = k->state;
    if (elems <= state->wide_elems) return state->wide;
    k->free(k, state->wide);
    state->wide_elems = 0;
    state->wide = k->alloc(k, elems * sizeof(float));
    if (state->wide) state->wide_elems = elems;
    return state->wide;
}

static size_t padded(size_t elems) { return (elems + 15) / 16 * 16; }

typedef struct bf16_product {
    uint16_t *narrow; /* the result, as bf16; NULL: the result is c, as fp32 */
    float *c;
    const uint16_t *a, *b;
    size_t m, n, depth;
    unsigned flags; /* as for cpu_matmul */
} bf16_product;

/* Widens all of b, and then one panel of a at a time. A panel consists of rows of a; the panel's
 * product with b gives the rows of c with the same numbers. */
static int multiply_by_rows(kernels *k, const bf16_product *p) {
    const size_t panel = p->m < PANEL ? p->m : PANEL;
    const size_t b_elems = padded(p->n * p->depth), a_elems = padded(panel * p->depth);
    float *b = wide_memory(k, b_elems + a_elems + (p->narrow ? panel * p->n : 0));
    if (!b) return 1;
    float *a = b + b_elems, *c = a + a_elems;
    cpu_widen(k, b, p->b, p->n * p->depth);
    for (size_t row = 0; row < p->m; row += panel) {
        const size_t rows = p->m - row < panel ? p->m - row : panel;
        cpu_widen(k, a, p->a + row * p->depth, rows * p->depth);
        k->matmul(k, p->narrow ? c : p->c + row * p->n, a, b, rows, p->n, p->depth, p->flags);
        if (p->narrow) cpu_narrow(k, p->narrow + row * p->n, c, rows * p->n);
    }
    return 0;
}

/* If matrix a is stored as [depth,m]: multiplies panels of rows of a by panels of rows of b, which
 * is [depth,n], and adds up the products in c. If b is transposed, it has no such panels, so a and
 * b are widened completely at once. */
static int multiply_by_depth(kernels *k, const bf16_product *p) {
    const size_t most = p->flags & KERNELS_TRANSPOSE_B ? p->depth : PANEL;
    const size_t panel = p->depth < most ? p->depth : most;
    const size_t a_elems = padded(panel * p->m), b_elems = padded(panel * p->n);
    float *a = wide_memory(k, a_elems + b_elems + (p->narrow ? p->m * p->n : 0));
    if (!a) return 1;
    float *b = a + a_elems, *c = p->narrow ? b + b_elems : p->c;
    unsigned flags = p->flags;
    for (size_t row = 0; row < p->depth; row += panel) {
        const size_t rows = p->depth - row < panel ? p->depth - row : panel;
        cpu_widen(k, a, p->a + row * p->m, rows * p->m);
        cpu_widen(k, b, p->b + row * p->n, rows * p->n);
        k->matmul(k, c, a, b, p->m, p->n, rows, flags);
        flags |= KERNELS_ADD;
    }
    if (p->narrow) cpu_narrow(k, p->narrow, c, p->m * p->n);
    return 0;
}

static void poison_bf16(kernels *k, void *c, size_t elems, unsigned flags) {
    memset(c, 0xff, elems * (flags & KERNELS_NARROW ? sizeof(uint16_t) : sizeof(float)));
    cpu_matmul_fail(k);
}

static void cpu_matmul_bf16(kernels *k, void *c, const uint16_t *a, const uint16_t *b, size_t m,
                            size_t n, size_t depth, unsigned flags) {
    const cpu_state *state = k->state;
    const bool narrow = (flags & KERNELS_NARROW) != 0;
    const bf16_product p = {.narrow = narrow ? c : NULL,
                            .c = narrow ? NULL : c,
                            .a = a,
                            .b = b,
                            .m = m,
                            .n = n,
                            .depth = depth,
                            .flags = flags & ~(unsigned)KERNELS_NARROW};
    if (!m || !n) return;
    const bool failed = state->bf16 ? multiply_by_dnnl(state->bf16, c, a, b, m, n, depth, flags)
                        : flags & KERNELS_TRANSPOSE_A ? multiply_by_depth(k, &p)
                                                      : multiply_by_rows(k, &p);
    if (failed) poison_bf16(k, c, m * n, flags);
}

/* The forward product with a rounded result needs more memory than a layer's other products: the
 * whole weight, a panel of the operand, and a panel of the result. */
static size_t cpu_matmul_bf16_keeps(const kernels *k, size_t m, size_t n, size_t depth) {
    const cpu_state *state = k->state;
    const size_t panel = m < PANEL ? m : PANEL;
    return state->bf16 ? 0 : (n * depth + panel * (n + depth)) * sizeof(float);
}

void cpu_bf16_fill(kernels *k) {
    k->narrow = cpu_narrow;
    k->narrow_on = cpu_narrow_on;
    k->widen = cpu_widen;
    k->widen_upper = cpu_widen_upper;
    k->matmul_bf16 = cpu_matmul_bf16;
    k->matmul_bf16_keeps = cpu_matmul_bf16_keeps;
}

/* Matrix products through oneDNN's dnnl_sgemm, which by itself selects the best kernels for the
 * processor. OpenBLAS did not select them on AVX-512 machines: it used Haswell's kernels (250
 * instead of 470 GFLOP/s) unless an environment variable was set before it was loaded. Some
 * products on processors with only AVX2 use OpenBLAS, however. There, oneDNN does not pack operands
 * if both sides of c are small. The gradient of a weight of 512 x 512 runs at 53 GFLOP/s with
 * oneDNN, and at 86 GFLOP/s with OpenBLAS. The gradients of a head's keys and values run at 62
 * GFLOP/s with oneDNN, and at 85 GFLOP/s with OpenBLAS.
 *
 * The bits are the same every time, because only the processor and the shape decide which of the
 * two libraries multiplies. Each product runs on one thread: more threads would divide the work,
 * and thus change the order of the sums. The environment variable ONEDNN_MAX_CPU_ISA is overruled,
 * so it has no effect. OPENBLAS_CORETYPE has an effect, because OpenBLAS reads it before main; so
 * the description names the kernels that OpenBLAS selected. */

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
    /* after the first product oneDNN refuses this call, harmlessly: it has selected its kernels */
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

void cpu_matmul_fail(kernels *k) { ((cpu_state *)k->state)->product_failed = true; }

static bool has_avx2_alone(void) {
#ifdef __x86_64__
    return __builtin_cpu_supports("avx2") && !__builtin_cpu_supports("avx512f");
#else
    return 0;
#endif
}

/* Returns true if OpenBLAS computes the product faster than oneDNN, as measured on Zen 3. Such
 * products are gradients of weights, or of a head's keys and values. */
static bool suits_openblas(const cpu_product *p) {
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
    bool ta = (flags & KERNELS_TRANSPOSE_A) != 0, tb = (flags & KERNELS_TRANSPOSE_B) != 0;
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
