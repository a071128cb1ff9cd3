/* A box in slices: they follow each other without gaps, each is a box with contiguous elements,
 * none is larger than requested, and none could have been longer. */
#include "support/core_fixture.h"

/* The position of an element of `whole` in row-major order. */
static uint64_t place(uint32_t ndim, const dcp_box *whole, const uint64_t *index) {
    uint64_t at = 0;
    for (uint32_t d = 0; d < ndim; d++) at = at * whole->count[d] + (index[d] - whole->start[d]);
    return at;
}

static uint64_t last_place(uint32_t ndim, const dcp_box *whole, const dcp_box *slice) {
    uint64_t last[DCP_MAX_DIMS];
    for (uint32_t d = 0; d < ndim; d++) last[d] = slice->start[d] + slice->count[d] - 1;
    return place(ndim, whole, last);
}

static void slices_follow_each_other(void **state) {
    (void)state;
    for (int round = 0; round < 3000; round++) {
        uint64_t shape[DCP_MAX_DIMS], most = between(1, 40), n;
        uint32_t ndim = any_shape(shape);
        dcp_box box = any_box(ndim, shape, 1), slice;
        uint64_t elems = dcp_box_elems(&box, ndim);
        for (uint64_t first = 0; first < elems; first += n) {
            n = dcp_box_slice(ndim, &box, first, most, &slice);
            assert_true(n > 0 && n <= most);
            assert_int_equal(n, dcp_box_elems(&slice, ndim));
            assert_int_equal(place(ndim, &box, slice.start), first);
            assert_int_equal(last_place(ndim, &box, &slice), first + n - 1);
        }
    }
}

static void rows_are_kept_whole_where_they_fit(void **state) {
    (void)state;
    dcp_box box = {{4, 2, 0}, {5, 3, 7}}, slice;
    assert_int_equal(dcp_box_slice(3, &box, 0, 1000, &slice), 105);
    assert_true(core_box_equal(3, &box, &slice));
    assert_int_equal(dcp_box_slice(3, &box, 21, 62, &slice), 42);
    assert_int_equal(slice.start[0], 5);
    assert_int_equal(dcp_box_slice(3, &box, 21, 20, &slice), 14);
    assert_int_equal(dcp_box_slice(3, &box, 35, 20, &slice), 7);
    assert_int_equal(dcp_box_slice(3, &box, 40, 20, &slice), 2);
    dcp_box scalar = {{0}, {1}};
    assert_int_equal(dcp_box_slice(1, &scalar, 0, 1, &slice), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_follow_each_other),
        cmocka_unit_test(rows_are_kept_whole_where_they_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
