/* Matrix products of bf16 by oneDNN, on processors with instructions for them (AVX512_BF16, AMX).
 * oneDNN keeps what it compiled for a shape; to ask it anew for each product costs microseconds.
 * One thread, as for fp32: see matmul.c. */
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdlib.h>

#include "cpu/cpu.h"

struct cpu_bf16 {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
};

static int has_products(void) {
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

/* A matrix [rows,cols] in row-major order, or stored as its transpose. */
static dnnl_status_t matrix(dnnl_memory_desc_t *out, size_t rows, size_t cols, int transposed,
                            dnnl_data_type_t type) {
    const dnnl_dims_t dims = {(dnnl_dim_t)rows, (dnnl_dim_t)cols};
    const dnnl_dims_t strides = {transposed ? 1 : (dnnl_dim_t)cols,
                                 transposed ? (dnnl_dim_t)rows : 1};
    return dnnl_memory_desc_init_by_strides(out, 2, dims, type, strides);
}

static dnnl_status_t compile(dnnl_primitive_t *out, dnnl_engine_t engine,
                             const dnnl_memory_desc_t *a, const dnnl_memory_desc_t *b,
                             const dnnl_memory_desc_t *c, int add) {
    dnnl_matmul_desc_t desc;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t sum = NULL;
    dnnl_primitive_desc_t found = NULL;
    dnnl_status_t status = dnnl_matmul_desc_init(&desc, a, b, NULL, c);
    if (!status && add) status = dnnl_primitive_attr_create(&attr);
    if (!status && add) status = dnnl_post_ops_create(&sum);
    if (!status && add) status = dnnl_post_ops_append_sum(sum, 1.0f);
    if (!status && add) status = dnnl_primitive_attr_set_post_ops(attr, sum);
    if (!status) status = dnnl_primitive_desc_create(&found, &desc, attr, engine, NULL);
    if (!status) status = dnnl_primitive_create(out, found);
    if (found) dnnl_primitive_desc_destroy(found);
    if (sum) dnnl_post_ops_destroy(sum);
    if (attr) dnnl_primitive_attr_destroy(attr);
    return status;
}

enum { A, B, C, MATRICES };

static dnnl_status_t execute(const cpu_bf16 *on, dnnl_primitive_t product,
                             const dnnl_memory_desc_t *desc, void *const *data) {
    static const int places[MATRICES] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
    dnnl_exec_arg_t args[MATRICES] = {{0}};
    dnnl_status_t status = dnnl_success;
    for (int i = 0; i < MATRICES; i++) {
        args[i].arg = places[i];
        if (!status) status = dnnl_memory_create(&args[i].memory, &desc[i], on->engine, data[i]);
    }
    if (!status) status = dnnl_primitive_execute(product, on->stream, MATRICES, args);
    if (!status) status = dnnl_stream_wait(on->stream);
    for (int i = 0; i < MATRICES; i++)
        if (args[i].memory) dnnl_memory_destroy(args[i].memory);
    return status;
}

int cpu_bf16_matmul(const cpu_bf16 *on, void *c, const uint16_t *a, const uint16_t *b, size_t m,
                    size_t n, size_t depth, unsigned flags) {
    void *const data[MATRICES] = {(void *)a, (void *)b, c};
    dnnl_memory_desc_t desc[MATRICES];
    dnnl_primitive_t product = NULL;
    omp_set_num_threads(1);
    dnnl_status_t status =
        matrix(&desc[A], m, depth, (flags & KERNELS_TRANSPOSE_A) != 0, dnnl_bf16);
    if (!status) status = matrix(&desc[B], depth, n, (flags & KERNELS_TRANSPOSE_B) != 0, dnnl_bf16);
    if (!status) status = matrix(&desc[C], m, n, 0, flags & KERNELS_NARROW ? dnnl_bf16 : dnnl_f32);
    if (!status)
        status =
            compile(&product, on->engine, &desc[A], &desc[B], &desc[C], (flags & KERNELS_ADD) != 0);
    if (!status) status = execute(on, product, desc, data);
    if (product) dnnl_primitive_destroy(product);
    return status != dnnl_success;
}
