/* Runs of a box between two arrays: they have the same elements, in the same order, as a loop over
 * single elements, and can be found by their bytes. */
#include "support/core_fixture.h"

/* A box of `count` elements per dimension that is part of two arrays. */
struct scene {
    uint32_t ndim;
    uint64_t elem_bytes, count[DCP_MAX_DIMS];
    uint64_t shape_a[DCP_MAX_DIMS], start_a[DCP_MAX_DIMS], shape_b[DCP_MAX_DIMS],
        start_b[DCP_MAX_DIMS];
};

static struct scene any_scene(uint64_t least) {
    struct scene s = {.elem_bytes = 1ULL << between(0, 3)};
    s.ndim = any_shape(s.shape_a);
    dcp_box box = any_box(s.ndim, s.shape_a, least);
    memcpy(s.start_a, box.start, sizeof s.start_a);
    memcpy(s.count, box.count, sizeof s.count);
    for (uint32_t d = 0; d < s.ndim; d++) {
        s.start_b[d] = any() % 3 ? 0 : between(0, 2);
        s.shape_b[d] = s.start_b[d] + s.count[d] + (any() % 3 ? 0 : between(0, 2));
    }
    return s;
}

static box_copy copy_of(const struct scene *s) {
    box_copy copy;
    core_box_copy_init(&copy, s->ndim, s->elem_bytes, s->count, s->shape_a, s->start_a, s->shape_b,
                       s->start_b);
    return copy;
}

/* The byte offset in an array of element i (row-major) of the box. */
static uint64_t element(const struct scene *s, uint64_t i, const uint64_t *shape,
                        const uint64_t *start) {
    uint64_t offset = 0, stride = s->elem_bytes;
    for (uint32_t d = s->ndim; d-- > 0; i /= s->count[d]) {
        offset += (start[d] + i % s->count[d]) * stride;
        stride *= shape[d];
    }
    return offset;
}

static void runs_are_the_elements_in_order(void **state) {
    (void)state;
    for (int round = 0; round < 2000; round++) {
        struct scene s = any_scene(1);
        box_copy copy = copy_of(&s);
        uint64_t i = 0, a, b, elements = 1;
        for (uint32_t d = 0; d < s.ndim; d++) elements *= s.count[d];
        assert_int_equal(copy.run_bytes % s.elem_bytes, 0);
        assert_int_equal(copy.runs * copy.run_bytes, elements * s.elem_bytes);
        for (uint64_t run = 0; run < copy.runs; run++) {
            core_box_copy_run(&copy, run, &a, &b);
            for (uint64_t at = 0; at < copy.run_bytes; at += s.elem_bytes, i++) {
                assert_int_equal(a + at, element(&s, i, s.shape_a, s.start_a));
                assert_int_equal(b + at, element(&s, i, s.shape_b, s.start_b));
            }
        }
    }
}

static void a_box_cut_on_dimension_0_is_one_run(void **state) {
    (void)state;
    uint64_t shape[] = {13, 7, 5}, start[] = {4, 0, 0}, count[] = {6, 7, 5}, origin[3] = {0};
    box_copy copy;
    core_box_copy_init(&copy, 3, 4, count, shape, start, count, origin);
    assert_int_equal(copy.runs, 1);
    assert_int_equal(copy.run_bytes, 6 * 7 * 5 * 4);
    assert_int_equal(copy.base_a, 4 * 7 * 5 * 4);
    assert_int_equal(copy.base_b, 0);
}

static void an_empty_box_has_no_runs(void **state) {
    (void)state;
    for (int round = 0; round < 500; round++) {
        struct scene s = any_scene(1);
        uint32_t d = (uint32_t)between(0, s.ndim - 1);
        s.count[d] = 0;
        assert_int_equal(copy_of(&s).runs, 0);
    }
}

static void the_run_that_ends_after_a_byte_is_found(void **state) {
    (void)state;
    for (int round = 0; round < 300; round++) {
        struct scene s = any_scene(0);
        box_copy copy = copy_of(&s);
        uint64_t size = s.elem_bytes, expected = 0, a, b;
        for (uint32_t d = 0; d < s.ndim; d++) size *= s.shape_a[d];
        for (uint64_t offset = 0; offset <= size; offset++) {
            for (; expected < copy.runs; expected++) {
                core_box_copy_run(&copy, expected, &a, &b);
                if (a + copy.run_bytes > offset) break;
            }
            assert_int_equal(core_box_copy_find(&copy, offset), expected);
        }
    }
}

static void boxes_share_what_both_hold(void **state) {
    (void)state;
    for (int round = 0; round < 3000; round++) {
        uint64_t shape[DCP_MAX_DIMS];
        uint32_t ndim = any_shape(shape);
        dcp_box a = any_box(ndim, shape, 0), b = any_box(ndim, shape, 0), shared = {0};
        int found = core_box_intersect(ndim, &a, &b, &shared), expected = 1;
        for (uint32_t d = 0; d < ndim; d++) {
            uint64_t both = 0;
            for (uint64_t i = 0; i < shape[d]; i++)
                both += i >= a.start[d] && i < a.start[d] + a.count[d] && i >= b.start[d] &&
                        i < b.start[d] + b.count[d];
            expected &= both > 0;
            if (found) assert_int_equal(shared.count[d], both);
            if (found) assert_true(shared.start[d] >= a.start[d] && shared.start[d] >= b.start[d]);
        }
        assert_int_equal(found, expected);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_are_the_elements_in_order),
        cmocka_unit_test(a_box_cut_on_dimension_0_is_one_run),
        cmocka_unit_test(an_empty_box_has_no_runs),
        cmocka_unit_test(the_run_that_ends_after_a_byte_is_found),
        cmocka_unit_test(boxes_share_what_both_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
