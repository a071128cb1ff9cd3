/* cuBLASLt on the host, its products: see cublasLt.h. */
#include <math.h>
#include <string.h>

#include "blas_objects.h"
#include "cuda/common/cuda_state.h"
#include "cuda/products/blas.h"

static int has_bias(const struct emulated_product *p) {
    return (p->epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
}

static int has_gelu(const struct emulated_product *p) {
    return (p->epilogue & CUBLASLT_EPILOGUE_GELU_AUX) != 0;
}

static uint32_t alignment(const void *p) { return (uint32_t)((uintptr_t)p & (~(uintptr_t)p + 1)); }

static int is_matrix(const struct emulated_matrix *m, int transposed, uint64_t rows,
                     uint64_t cols) {
    return m->ld >= (int64_t)m->rows && (transposed ? m->cols : m->rows) == rows &&
           (transposed ? m->rows : m->cols) == cols;
}

static int fits(const struct emulated_product *p, const struct emulated_matrix *a,
                const struct emulated_matrix *b, const struct emulated_matrix *c,
                const struct emulated_matrix *d) {
    const uint64_t depth = p->transpose_a ? a->rows : a->cols;
    const int wide = a->type == CUDA_R_32F;
    return is_matrix(a, p->transpose_a, d->rows, depth) &&
           is_matrix(b, p->transpose_b, depth, d->cols) && is_matrix(c, 0, d->rows, d->cols) &&
           is_matrix(d, 0, d->rows, d->cols) && a->type == b->type && c->type == d->type &&
           (!wide || d->type == CUDA_R_32F) && (wide || p->compute == CUBLAS_COMPUTE_32F) &&
           (p->epilogue == CUBLASLT_EPILOGUE_DEFAULT || d->type == CUDA_R_32F) &&
           (!has_gelu(p) || (p->aux_ld >= (int64_t)d->rows && p->aux_ld % 8 == 0));
}

/* As may happen, it has no algorithm for some products: those whose depth is 11; with an epilogue,
 * also those whose depth is 7; with GELU, also those whose depth is 8. */
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t wish, int most,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int *found) {
    const uint64_t depth = product->transpose_a ? a->rows : a->cols;
    *found = 0;
    if (!handle || most < 1 || !fits(product, a, b, c, d)) return CUBLAS_STATUS_INVALID_VALUE;
    /* Parts of sums in anything but fp32, or added in place, would be other bits. */
    if (wish->reduction & ~(uint32_t)CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (depth == 11 || (product->epilogue != CUBLASLT_EPILOGUE_DEFAULT && depth == 7) ||
        (has_gelu(product) && depth == 8))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (has_gelu(product) && depth == 9) return CUBLAS_STATUS_INVALID_VALUE;
    *found = 1;
    results[0] = (cublasLtMatmulHeuristicResult_t){.state = CUBLAS_STATUS_SUCCESS,
                                                   .algo = {.rows = d->rows,
                                                            .cols = d->cols,
                                                            .depth = depth,
                                                            .transpose_a = product->transpose_a,
                                                            .transpose_b = product->transpose_b,
                                                            .epilogue = product->epilogue,
                                                            .a = a->type,
                                                            .b = b->type,
                                                            .d = d->type,
                                                            .compute = product->compute,
                                                            .align_a = wish->align_a,
                                                            .align_b = wish->align_b,
                                                            .align_c = wish->align_c,
                                                            .align_d = wish->align_d,
                                                            .align_bias = alignment(product->bias),
                                                            .align_aux = alignment(product->aux),
                                                            .workspace = wish->workspace}};
    return CUBLAS_STATUS_SUCCESS;
}

static int is_of(const cublasLtMatmulAlgo_t *x, const struct emulated_product *p,
                 const struct emulated_matrix *a, const struct emulated_matrix *b,
                 const struct emulated_matrix *d) {
    return x->rows == d->rows && x->cols == d->cols &&
           x->depth == (p->transpose_a ? a->rows : a->cols) && x->transpose_a == p->transpose_a &&
           x->transpose_b == p->transpose_b && x->epilogue == p->epilogue && x->a == a->type &&
           x->b == b->type && x->d == d->type && x->compute == p->compute;
}

static float at(const void *x, const struct emulated_matrix *m, uint64_t row, uint64_t col) {
    const uint64_t i = col * (uint64_t)m->ld + row;
    uint32_t bits;
    float value;
    if (m->type == CUDA_R_32F)
        memcpy(&bits, (const float *)x + i, sizeof bits);
    else
        bits = (uint32_t)((const uint16_t *)x)[i] << 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* An operand, in tf32 where that is asked for. */
static float operand_at(const struct emulated_product *p, const void *x,
                        const struct emulated_matrix *m, int transposed, uint64_t row,
                        uint64_t col) {
    float value = at(x, m, transposed ? col : row, transposed ? row : col);
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (p->compute == CUBLAS_COMPUTE_32F_FAST_TF32) bits &= 0xffffe000;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void put(void *x, const struct emulated_matrix *m, uint64_t row, uint64_t col, float value) {
    const uint64_t i = col * (uint64_t)m->ld + row;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (m->type == CUDA_R_32F)
        ((float *)x)[i] = value;
    else
        ((uint16_t *)x)[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* As roughly as the library may do it. */
static float gelu(float x) {
    const float t = tanhf(0.79788456f * (x + 0.044715f * x * x * x));
    return 0.5f * x * (1.0f + t * (1.0f - 0x1p-11f));
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                              const void *alpha, const void *a, cublasLtMatrixLayout_t a_layout,
                              const void *b, cublasLtMatrixLayout_t b_layout, const void *beta,
                              const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t *algorithm, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
    const float keep = *(const float *)beta;
    const uint64_t depth = algorithm->depth;
    (void)stream;
    if (!handle || !workspace || workspace_bytes < algorithm->workspace ||
        !is_of(algorithm, product, a_layout, b_layout, d_layout) ||
        !fits(product, a_layout, b_layout, c_layout, d_layout) ||
        alignment(a) < algorithm->align_a || alignment(b) < algorithm->align_b ||
        alignment(c) < algorithm->align_c || alignment(d) < algorithm->align_d ||
        (has_bias(product) && (!product->bias || alignment(product->bias) < algorithm->align_bias)))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (has_gelu(product) && depth == 10) return CUBLAS_STATUS_NOT_SUPPORTED; /* after all */
    for (uint64_t col = 0; col < d_layout->cols; col++)
        for (uint64_t row = 0; row < d_layout->rows; row++) {
            float sum = 0.0f;
            for (uint64_t i = 0; i < depth; i++)
                sum += operand_at(product, a, a_layout, product->transpose_a, row, i) *
                       operand_at(product, b, b_layout, product->transpose_b, i, col);
            sum *= *(const float *)alpha;
            if (keep != 0.0f) sum += keep * at(c, c_layout, row, col);
            if (has_bias(product)) sum += product->bias[row];
            if (has_gelu(product)) {
                product->aux[col * (uint64_t)product->aux_ld + row] = sum;
                sum = gelu(sum);
            }
            put(d, d_layout, row, col, sum);
        }
    return CUBLAS_STATUS_SUCCESS;
}

int cuda_blas_load(cuda_blas *blas) {
    *blas = (cuda_blas){.create = cublasLtCreate,
                        .destroy = cublasLtDestroy,
                        .version = cublasLtGetVersion,
                        .status_string = cublasLtGetStatusString,
                        .product_create = cublasLtMatmulDescCreate,
                        .product_destroy = cublasLtMatmulDescDestroy,
                        .product_set = cublasLtMatmulDescSetAttribute,
                        .layout_create = cublasLtMatrixLayoutCreate,
                        .layout_destroy = cublasLtMatrixLayoutDestroy,
                        .wish_create = cublasLtMatmulPreferenceCreate,
                        .wish_destroy = cublasLtMatmulPreferenceDestroy,
                        .wish_set = cublasLtMatmulPreferenceSetAttribute,
                        .choose = cublasLtMatmulAlgoGetHeuristic,
                        .multiply = cublasLtMatmul};
    return 0;
}

void cuda_blas_unload(cuda_blas *blas) { blas->destroy(blas->handle); }
