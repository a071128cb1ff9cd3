/* Parts of boxes with strides, read, written and summed at any offset, equal those of the dense
 * box; what is contiguous is recognized; what leads out of memory or overlaps is reported. */
#include "core/strides.h"

#include "core/crc64.h"
#include "support/core_fixture.h"
#include "support/view.h"

#define HALF ((uint64_t)1 << 62)

static int merge(const view *v, box_strides *out) {
    return core_strides_merge(v->ndim, v->elem_bytes, v->count, v->strides, v->data, out);
}

static void check_parts(view *v, const box_strides *s, const unsigned char *dense) {
    const uint64_t bytes = view_elems(v) * v->elem_bytes;
    unsigned char *out = malloc(bytes);
    for (int i = 0; i < 8; i++) {
        const uint64_t from = i ? between(0, bytes - 1) : 0,
                       n = i ? between(1, bytes - from) : bytes;
        core_strides_get(v->data, s, from, n, out);
        assert_memory_equal(out, dense + from, n);
        assert_int_equal(core_strides_sum(7, v->data, s, from, n),
                         core_crc64_raw(7, dense + from, n));
        uint64_t contiguous;
        const unsigned char *at = core_strides_find(v->data, s, from, &contiguous);
        if (contiguous > bytes - from) contiguous = bytes - from;
        assert_true(contiguous > 0);
        assert_memory_equal(at, dense + from, contiguous);
    }
    free(out);
}

/* Writes in two parts that meet anywhere, also within an element. */
static void check_writes(view *v, const box_strides *s, const unsigned char *dense) {
    const uint64_t bytes = view_elems(v) * v->elem_bytes, middle = between(0, bytes);
    memset(v->memory, VIEW_UNTOUCHED, v->bytes);
    core_strides_put(v->data, s, middle, bytes - middle, dense + middle);
    core_strides_put(v->data, s, 0, middle, dense);
    assert_true(view_is(v, dense));
}

static void check_box(view_way way, uint32_t ndim, size_t elem_bytes, const uint64_t *count) {
    view v;
    box_strides strides;
    view_make(&v, way, ndim, elem_bytes, count);
    unsigned char *dense = any_bytes(view_elems(&v) * elem_bytes);
    view_fill(&v, dense);
    assert_true(merge(&v, &strides) && !strides.overlaps);
    check_parts(&v, strides.dims ? &strides : NULL, dense);
    check_writes(&v, strides.dims ? &strides : NULL, dense);
    free(dense);
    view_free(&v);
}

static void any_boxes(void **state) {
    static const size_t sizes[] = {1, 2, 3, 4, 8, 16, 96};
    (void)state;
    for (int i = 0; i < 300; i++) {
        uint64_t count[DCP_MAX_DIMS];
        const uint32_t ndim = any_shape(count);
        for (view_way way = 0; way < VIEW_WAYS; way++)
            check_box(way, ndim, sizes[between(0, 6)], count);
    }
}

/* Rows longer than a gathered part, and more rows than share a cache line. */
static void larger_boxes(void **state) {
    static const uint64_t counts[][3] = {{3, 5, 9000}, {70, 3, 33}, {5, 90, 40}, {2, 2000, 12}};
    (void)state;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (view_way way = 0; way < VIEW_WAYS; way++)
            check_box(way, 3, 1 + 3 * (i % 2), counts[i]);
}

static void merged(const int64_t *strides, uint64_t run_bytes, uint32_t dims) {
    static const uint64_t count[] = {3, 1, 4, 5};
    static unsigned char memory[4096];
    box_strides s;
    assert_true(core_strides_merge(4, 8, count, strides, memory + 2048, &s));
    assert_int_equal(s.run_bytes, run_bytes);
    assert_int_equal(s.dims, dims);
}

static void contiguous_dimensions_are_merged(void **state) {
    (void)state;
    merged((const int64_t[]){160, 160, 40, 8}, 480, 0);
    merged((const int64_t[]){160, INT64_MIN, 40, 8}, 480, 0); /* of one index: no stride */
    merged((const int64_t[]){168, 0, 40, 8}, 160, 1);
    merged((const int64_t[]){192, 0, 48, 8}, 40, 1);
    merged((const int64_t[]){-160, 0, -40, -8}, 8, 1);
    merged((const int64_t[]){0, 0, 0, 0}, 8, 1);
    merged((const int64_t[]){8, 0, 24, 96}, 8, 3);
}

static int overlaps(uint64_t n, uint64_t m, int64_t stride_n, int64_t stride_m) {
    static unsigned char memory[4096];
    box_strides s;
    assert_true(core_strides_merge(2, 4, (const uint64_t[]){n, m},
                                   (const int64_t[]){stride_n, stride_m}, memory + 2048, &s));
    return s.overlaps;
}

static void elements_that_overlap_are_seen(void **state) {
    (void)state;
    assert_false(overlaps(3, 5, 20, 4));
    assert_false(overlaps(3, 5, -20, 4));
    assert_false(overlaps(3, 5, 4, -12));
    assert_true(overlaps(3, 5, 0, 4));
    assert_true(overlaps(3, 5, 20, 0));
    assert_true(overlaps(3, 5, 4, 4));
    assert_true(overlaps(3, 5, 18, 4));
    assert_true(overlaps(3, 5, 20, 3));
    assert_true(overlaps(3, 5, -8, 4));
    assert_false(overlaps(1, 5, 0, 4));
}

static int has_addresses(uint64_t count, int64_t stride, uintptr_t data) {
    box_strides s;
    const uint64_t counts[] = {count, 2};
    const int64_t strides[] = {stride, 1};
    return core_strides_merge(2, 1, counts, strides, (const void *)data, &s);
}

static void addresses_that_do_not_exist_are_refused(void **state) {
    (void)state;
    assert_true(has_addresses(16, 4096, 1 << 20));
    assert_true(has_addresses(16, -4096, 1 << 20));
    assert_false(has_addresses(300, -4096, 1 << 20));
    assert_false(has_addresses(2, INT64_MIN, 1 << 20));
    assert_false(has_addresses(2, INT64_MAX, 1 << 20));
    assert_false(has_addresses(HALF, 4, 1 << 20));
    assert_false(has_addresses(HALF, 8, 1 << 20));
    assert_false(has_addresses(HALF, -8, 1 << 20));
    assert_false(has_addresses(16, 4096, UINTPTR_MAX - 4096));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_boxes),
        cmocka_unit_test(larger_boxes),
        cmocka_unit_test(contiguous_dimensions_are_merged),
        cmocka_unit_test(elements_that_overlap_are_seen),
        cmocka_unit_test(addresses_that_do_not_exist_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
