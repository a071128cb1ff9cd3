/* Helpers without a status take any values: they answer with nothing, and touch nothing beyond what
 * they were given. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "dcp/dcp.h"
#include "dcp/inspect.h"

static const dcp_tensor matrix = {"/model/w", DCP_F32, 2, {5, 3}};

static void chunks_of_no_rank_are_empty(void **state) {
    static const int ranks[][2] = {{0, 0}, {0, -1}, {-1, 2}, {2, 2}, {INT32_MIN, INT32_MAX}};
    const dcp_tensor scalar = {"/model/s", DCP_F32, 0, {0}};
    (void)state;
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        const dcp_box box = dcp_box_chunk(&matrix, ranks[i][0], ranks[i][1]);
        const dcp_box point = dcp_box_chunk(&scalar, ranks[i][0], ranks[i][1]);
        assert_int_equal(dcp_box_elems(&box, 2), 0);
        assert_int_equal(dcp_box_elems(&point, 0), 0);
    }
}

static void slices_of_nothing_are_empty(void **state) {
    const dcp_box boxes[] = {{{0}, {0}},
                             {{1, 1}, {0, 3}},
                             {{1, 1}, {3, 0}},
                             {{0}, {UINT64_MAX, UINT64_MAX}},
                             {{0}, {(1ULL << 63) + 1, 2}},
                             {{0}, {1ULL << 32, 1ULL << 32}}};
    (void)state;
    for (size_t i = 0; i < sizeof boxes / sizeof *boxes; i++)
        for (uint32_t ndim = 2; ndim < 12; ndim++) {
            dcp_box out;
            assert_int_equal(dcp_box_slice(ndim, &boxes[i], 0, 10, &out), 0);
            assert_int_equal(dcp_box_elems(&out, ndim), 0);
        }
    dcp_box out;
    const dcp_box whole = dcp_box_whole(&matrix);
    assert_int_equal(dcp_box_slice(2, &whole, 15, 10, &out), 0);
    assert_int_equal(dcp_box_slice(2, &whole, UINT64_MAX, 0, &out), 0);
    assert_int_equal(dcp_box_slice(2, &whole, 14, 0, &out), 1);
}

/* The struct's neighbours are not read for dimensions that it does not have. */
static void dimensions_are_eight(void **state) {
    struct {
        dcp_tensor tensor;
        uint64_t beyond[64];
    } t;
    struct {
        dcp_box box;
        unsigned char beyond[64];
    } guarded, before;
    (void)state;
    for (uint32_t ndim = DCP_MAX_DIMS + 1; ndim < 40; ndim++) {
        memset(&t, 0x7f, sizeof t);
        memset(&guarded, 0x5a, sizeof guarded);
        before = guarded;
        t.tensor.ndim = ndim;
        t.tensor.dtype = DCP_F32;
        guarded.box = dcp_box_whole(&t.tensor);
        assert_memory_equal(guarded.beyond, before.beyond, sizeof before.beyond);
        guarded.box = dcp_box_chunk(&t.tensor, 1, 3);
        assert_memory_equal(guarded.beyond, before.beyond, sizeof before.beyond);
        assert_int_equal(dcp_tensor_bytes(&t.tensor), 0);
    }
}

static void types_that_there_are_not(void **state) {
    static const int types[] = {-1, 0, 1000, INT32_MAX, INT32_MIN};
    double in = 1, out = 0;
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const dcp_dtype dtype = (dcp_dtype)types[i];
        const dcp_tensor tensor = {"/model/w", dtype, 1, {4}};
        assert_int_equal(dcp_dtype_bytes(dtype), 0);
        assert_null(dcp_dtype_name(dtype));
        assert_int_equal(dcp_tensor_bytes(&tensor), 0);
        assert_int_not_equal(dcp_convert(dtype, &in, DCP_F64, &out, 1), DCP_OK);
        assert_int_not_equal(dcp_convert(DCP_F64, &in, dtype, &out, 1), DCP_OK);
        assert_non_null(dcp_status_text(types[i]));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_of_no_rank_are_empty),
        cmocka_unit_test(slices_of_nothing_are_empty),
        cmocka_unit_test(dimensions_are_eight),
        cmocka_unit_test(types_that_there_are_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
