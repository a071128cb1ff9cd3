/* What the CUDA backend keeps of cuBLASLt's choices, on the emulated one: a shape has one plan
 * wherever its arrays lie, and gives right results also where they are hardly aligned, and after
 * more shapes than are kept; a layer is one product where there is an algorithm for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cuda/common/cuda_state.h"
#include "cuda/products/blas_plan.h"

enum { SIDE = 4, ROOM = 256 };

typedef struct matrices {
    kernels *k;
    float *a, *b, *c; /* floats 0 ... ROOM - 1 */
} matrices;

static int set_up(void **state) {
    static matrices m;
    if (kernels_open("cuda", &m.k) != KERNELS_OK) return 1;
    m.a = m.k->alloc(m.k, ROOM * sizeof(float));
    m.b = m.k->alloc(m.k, ROOM * sizeof(float));
    m.c = m.k->alloc(m.k, ROOM * sizeof(float));
    for (size_t i = 0; i < ROOM; i++) {
        m.a[i] = 1.0f + (float)(i % 7);
        m.b[i] = 2.0f - (float)(i % 5);
    }
    *state = &m;
    return 0;
}

static int tear_down(void **state) {
    const matrices *m = *state;
    m->k->free(m->k, m->a);
    m->k->free(m->k, m->b);
    m->k->free(m->k, m->c);
    kernels_close(m->k);
    return 0;
}

/* Multiplies [SIDE,depth] by [depth,SIDE], each array `at` floats from its beginning. */
static void multiplies(const matrices *m, size_t depth, size_t at) {
    m->k->matmul(m->k, m->c + at, m->a + at, m->b + at, SIDE, SIDE, depth, 0);
    assert_null(m->k->sync(m->k));
    for (size_t i = 0; i < (size_t)SIDE * SIDE; i++) {
        float sum = 0.0f;
        for (size_t d = 0; d < depth; d++)
            sum += m->a[at + i / SIDE * depth + d] * m->b[at + d * SIDE + i % SIDE];
        assert_true(m->c[at + i] == sum);
    }
}

static size_t plans(const matrices *m) { return cuda_of(m->k)->plans->made; }

static void addresses_have_no_say(void **state) {
    const matrices *m = *state;
    multiplies(m, SIDE, 0);
    const size_t before = plans(m);
    for (size_t at = 4; at < 64; at += 4) multiplies(m, SIDE, at);
    assert_int_equal(plans(m), before);
}

/* The emulated library refuses an algorithm that was told of better addresses. */
static void alignment_is_told(void **state) {
    const matrices *m = *state;
    for (size_t at = 0; at < 8; at++) multiplies(m, SIDE, at);
}

static void tf32_is_another_plan(void **state) {
    const matrices *m = *state;
    multiplies(m, SIDE, 0);
    const size_t before = plans(m);
    m->k->allow_tf32(m->k, 1);
    multiplies(m, SIDE, 0);
    m->k->allow_tf32(m->k, 0);
    multiplies(m, SIDE, 0);
    assert_int_equal(plans(m), before + 1);
}

static void the_oldest_give_way(void **state) {
    const matrices *m = *state;
    for (int again = 0; again < 3; again++)
        for (size_t n = 1; n <= BLAS_PLANS + 3; n++) {
            m->k->matmul(m->k, m->c, m->a, m->b, 1, n, 1, 0);
            assert_null(m->k->sync(m->k));
            for (size_t i = 0; i < n; i++) assert_true(m->c[i] == m->a[0] * m->b[i]);
        }
    assert_true(plans(m) > BLAS_PLANS);
}

/* A layer of bf16 with a bias and GELU, of that depth: the number of plans that it makes. */
static size_t plans_of_layer(const matrices *m, size_t depth) {
    const size_t before = plans(m);
    const kernels_linear l = {.rows = 2,
                              .in = depth,
                              .out = 8,
                              .operands = KERNELS_BF16,
                              .x = m->a,
                              .weight = m->b,
                              .bias = m->b + ROOM / 2,
                              .activated = m->a + ROOM / 2,
                              .f = KERNELS_GELU_TANH};
    m->k->linear(m->k, m->c, &l);
    assert_null(m->k->sync(m->k));
    return plans(m) - before;
}

static const blas_plan *last_plan(const matrices *m) {
    return &cuda_of(m->k)->plans->plans[(plans(m) - 1) % BLAS_PLANS];
}

static void a_layer_is_one_product(void **state) {
    const matrices *m = *state;
    assert_int_equal(plans_of_layer(m, 16), 1);
    assert_int_equal(last_plan(m)->status, CUBLAS_STATUS_SUCCESS);
    assert_int_equal(last_plan(m)->shape.epilogue, CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
    assert_int_equal(plans_of_layer(m, 16), 0);
}

/* What the emulated library has no algorithm for is left out, the last first; see blas_product.c.
 */
static void what_is_refused_follows(void **state) {
    const matrices *m = *state;
    for (size_t depth = 8; depth <= 10; depth++) { /* before, by another word, and as it starts */
        assert_int_equal(plans_of_layer(m, depth), 2);
        assert_int_equal(last_plan(m)->shape.epilogue, CUBLASLT_EPILOGUE_BIAS);
        assert_int_equal(plans_of_layer(m, depth), 0);
    }
    assert_int_equal(plans_of_layer(m, 7), 3);
    assert_int_equal(last_plan(m)->shape.epilogue, CUBLASLT_EPILOGUE_DEFAULT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(addresses_have_no_say, set_up, tear_down),
        cmocka_unit_test_setup_teardown(alignment_is_told, set_up, tear_down),
        cmocka_unit_test_setup_teardown(tf32_is_another_plan, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_oldest_give_way, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_layer_is_one_product, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_refused_follows, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
