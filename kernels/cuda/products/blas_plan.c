/* Chooses the algorithm of a product. cuBLASLt proposes an algorithm for each shape; the epilogue
 * is part of the shape. cuBLASLt is queried once per shape, or again if the shape's plan is no
 * longer stored. The query contains nothing but the shape. So a shape has the same algorithm, and
 * gives the same bits, on every rank and in every run:
 *
 *   - cuBLASLt gets only the alignment of each address, up to BLAS_ALIGNMENT. (Without it,
 *     cuBLASLt would assume 256 bytes.)
 *   - The depth may be split if too few tiles would leave a part of the device idle. The partial
 *     sums must be fp32 in the workspace, and a separate kernel must add them in order. Adding them
 *     in the output's type, or in place, is not allowed.
 *   - The workspace is always the same memory.
 *
 * cuBLASLt is column-major, so it sees a row-major c = a b as c^T = b^T a^T. Therefore the operands
 * are exchanged, and each keeps its flag for transposition. A bias for each column of c is a bias
 * for each row of c^T, which the epilogue of cuBLASLt supports. */
#include <string.h>

#include "cuda/common/cuda_state.h"
#include "cuda/products/blas_plan.h"

/* Stores the first status that is not success. */
#define TRY(status, call)                                                                          \
    do {                                                                                           \
        if ((status) == CUBLAS_STATUS_SUCCESS) (status) = (call);                                  \
    } while (0)
#define SET(blas, plan, attribute, value)                                                          \
    (blas)->product_set((plan)->product, (attribute), &(value), sizeof(value))
#define WISH(blas, wish, attribute, value)                                                         \
    (blas)->wish_set((wish), (attribute), &(value), sizeof(value))

static cublasStatus_t describe_product(cuda_blas *blas, blas_plan *plan) {
    const blas_shape *s = &plan->shape;
    const int32_t first = s->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int32_t second = s->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    /* cuBLASLt gets these numbers, which have the alignment of the addresses, instead of the
     * addresses. */
    const void *bias = (const void *)(uintptr_t)s->align_bias;
    const void *aux = (const void *)(uintptr_t)s->align_aux;
    const int64_t aux_ld = (int64_t)s->n;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    TRY(status, blas->product_create(&plan->product, (cublasComputeType_t)s->compute, CUDA_R_32F));
    TRY(status, SET(blas, plan, CUBLASLT_MATMUL_DESC_TRANSA, first));
    TRY(status, SET(blas, plan, CUBLASLT_MATMUL_DESC_TRANSB, second));
    TRY(status, SET(blas, plan, CUBLASLT_MATMUL_DESC_EPILOGUE, s->epilogue));
    if (s->align_bias) TRY(status, SET(blas, plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias));
    if (s->align_aux) {
        TRY(status, SET(blas, plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux));
        TRY(status, SET(blas, plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, aux_ld));
    }
    return status;
}

/* Describes the transpose of a row-major [rows,cols], or of [cols,rows] if it is stored
 * transposed. */
static cublasStatus_t describe_matrix(cuda_blas *blas, cublasLtMatrixLayout_t *out, uint32_t type,
                                      uint64_t rows, uint64_t cols, unsigned transposed) {
    const uint64_t across = transposed ? rows : cols, down = transposed ? cols : rows;
    return blas->layout_create(out, (cudaDataType)type, across, down, (int64_t)across);
}

static cublasStatus_t wish_for(cuda_blas *blas, cublasLtMatmulPreference_t wish,
                               const blas_shape *s) {
    const uint64_t workspace = CUDA_WORKSPACE;
    const uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const uint32_t align_add = s->align_add ? s->align_add : s->align_stored;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    TRY(status, WISH(blas, wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace));
    TRY(status, WISH(blas, wish, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reduction));
    TRY(status, WISH(blas, wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, s->align_b));
    TRY(status, WISH(blas, wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, s->align_a));
    TRY(status, WISH(blas, wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, align_add));
    TRY(status, WISH(blas, wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, s->align_stored));
    return status;
}

static cublasStatus_t choose_algorithm(cuda_blas *blas, blas_plan *plan) {
    cublasLtMatmulHeuristicResult_t best;
    cublasLtMatmulPreference_t wish = NULL;
    int found = 0;
    cublasStatus_t status = blas->wish_create(&wish);
    TRY(status, wish_for(blas, wish, &plan->shape));
    TRY(status, blas->choose(blas->handle, plan->product, plan->b, plan->a, plan->c, plan->c, wish,
                             1, &best, &found));
    if (wish) blas->wish_destroy(wish);
    if (status == CUBLAS_STATUS_SUCCESS && !found) status = CUBLAS_STATUS_NOT_SUPPORTED;
    TRY(status, best.state);
    if (status == CUBLAS_STATUS_SUCCESS) plan->algorithm = best.algo;
    return status;
}

static void clear_plan(cuda_blas *blas, blas_plan *plan) {
    if (plan->product) blas->product_destroy(plan->product);
    if (plan->a) blas->layout_destroy(plan->a);
    if (plan->b) blas->layout_destroy(plan->b);
    if (plan->c) blas->layout_destroy(plan->c);
    memset(plan, 0, sizeof *plan);
}

static void make_plan(cuda_blas *blas, blas_plan *plan, const blas_shape *s) {
    clear_plan(blas, plan);
    plan->shape = *s;
    plan->status = describe_product(blas, plan);
    TRY(plan->status, describe_matrix(blas, &plan->a, s->operands, s->m, s->depth, s->transpose_a));
    TRY(plan->status, describe_matrix(blas, &plan->b, s->operands, s->depth, s->n, s->transpose_b));
    TRY(plan->status, describe_matrix(blas, &plan->c, s->result, s->m, s->n, 0));
    TRY(plan->status, choose_algorithm(blas, plan));
}

blas_plan *blas_plan_of(cuda_blas *blas, blas_plans *all, const blas_shape *shape) {
    const size_t kept = all->made < BLAS_PLANS ? all->made : BLAS_PLANS;
    for (size_t i = 0; i < kept; i++)
        if (!memcmp(&all->plans[i].shape, shape, sizeof *shape)) return &all->plans[i];
    blas_plan *oldest = &all->plans[all->made++ % BLAS_PLANS];
    make_plan(blas, oldest, shape);
    return oldest;
}

void blas_plan_free_all(cuda_blas *blas, blas_plans *all) {
    for (size_t i = 0; i < BLAS_PLANS; i++) clear_plan(blas, &all->plans[i]);
}
