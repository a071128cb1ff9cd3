/* Whether boxes cover a tensor: random partitions do; with a box removed or moved they do not; and
 * of equal boxes the lowest rank's is kept. */
#include <sys/resource.h>

#include "core/box.h"
#include "support/core_fixture.h"

#define MOST 64

struct cut {
    uint32_t ndim;
    uint64_t shape[DCP_MAX_DIMS];
    cover_box boxes[4 * MOST];
    size_t n;
};

/* Cuts boxes in two at random until there are enough. */
static void any_partition(struct cut *c) {
    c->ndim = any_shape(c->shape);
    c->boxes[0] = (cover_box){.rank = 0};
    memcpy(c->boxes[0].box.count, c->shape, sizeof c->shape);
    c->n = 1;
    for (int tries = (int)between(0, MOST - 1); tries > 0; tries--) {
        dcp_box *box = &c->boxes[between(0, c->n - 1)].box;
        uint32_t d = (uint32_t)between(0, c->ndim - 1);
        if (box->count[d] < 2) continue;
        uint64_t at = between(1, box->count[d] - 1);
        cover_box *rest = &c->boxes[c->n];
        *rest = (cover_box){.box = *box, .rank = (int)c->n};
        rest->box.start[d] += at;
        rest->box.count[d] -= at;
        box->count[d] = at;
        c->n++;
    }
}

static cover_result check(struct cut *c, size_t *first, size_t *second) {
    for (size_t i = c->n; i > 1; i--) { /* the order must not matter */
        size_t k = between(0, i - 1);
        cover_box box = c->boxes[i - 1];
        c->boxes[i - 1] = c->boxes[k];
        c->boxes[k] = box;
    }
    return core_cover_check(c->ndim, c->shape, c->boxes, c->n, first, second);
}

static void partitions_are_exact(void **state) {
    (void)state;
    for (int round = 0; round < 2000; round++) {
        struct cut c;
        size_t first, second;
        any_partition(&c);
        assert_int_equal(check(&c, &first, &second), COVER_EXACT);
        for (size_t i = 0; i < c.n; i++) assert_int_equal(c.boxes[i].keeper, 1);
    }
}

static void a_box_less_is_missing(void **state) {
    (void)state;
    for (int round = 0; round < 2000; round++) {
        struct cut c;
        size_t first, second;
        any_partition(&c);
        c.boxes[between(0, c.n - 1)] = c.boxes[c.n - 1];
        c.n--;
        assert_int_equal(check(&c, &first, &second), COVER_MISSING);
        dcp_box shared, hole = core_cover_hole(c.ndim, c.shape, c.boxes, c.n);
        assert_true(dcp_box_elems(&hole, c.ndim) > 0);
        for (uint32_t d = 0; d < c.ndim; d++)
            assert_true(hole.start[d] + hole.count[d] <= c.shape[d]);
        for (size_t i = 0; i < c.n; i++)
            assert_false(core_box_intersect(c.ndim, &hole, &c.boxes[i].box, &shared));
    }
}

static int equals_another(const struct cut *c, size_t which) {
    for (size_t i = 0; i < c->n; i++)
        if (i != which && core_box_equal(c->ndim, &c->boxes[i].box, &c->boxes[which].box)) return 1;
    return 0;
}

static void a_moved_box_overlaps(void **state) {
    (void)state;
    for (int moved = 0; moved < 1000;) {
        struct cut c;
        size_t first = 999, second = 999, which;
        any_partition(&c);
        uint32_t d = (uint32_t)between(0, c.ndim - 1);
        dcp_box *box = &c.boxes[which = between(0, c.n - 1)].box;
        if (box->start[d] + box->count[d] < c.shape[d])
            box->start[d]++;
        else if (box->start[d] > 0)
            box->start[d]--;
        else
            continue; /* it fills the dimension */
        if (equals_another(&c, which)) continue;
        moved++;
        assert_int_equal(check(&c, &first, &second), COVER_OVERLAP);
        dcp_box shared;
        assert_true(first < c.n && second < c.n && first != second);
        assert_true(core_box_intersect(c.ndim, &c.boxes[first].box, &c.boxes[second].box, &shared));
        assert_false(core_box_equal(c.ndim, &c.boxes[first].box, &c.boxes[second].box));
    }
}

static void of_equal_boxes_the_lowest_ranks_is_kept(void **state) {
    (void)state;
    for (int round = 0; round < 1000; round++) {
        struct cut c;
        size_t first, second, distinct;
        any_partition(&c);
        distinct = c.n;
        for (size_t i = 0; i < distinct; i++) {
            c.boxes[i].tag = i;
            c.boxes[i].rank = (int)between(0, 99);
            for (uint64_t copies = between(0, 2); copies > 0; copies--) {
                c.boxes[c.n] = c.boxes[i];
                c.boxes[c.n++].rank = (int)between(0, 99);
            }
        }
        assert_int_equal(check(&c, &first, &second), COVER_EXACT);
        int lowest[MOST], keepers[MOST] = {0};
        for (size_t i = 0; i < distinct; i++) lowest[i] = 100;
        for (size_t i = 0; i < c.n; i++)
            if (c.boxes[i].rank < lowest[c.boxes[i].tag]) lowest[c.boxes[i].tag] = c.boxes[i].rank;
        for (size_t i = 0; i < c.n; i++) {
            if (!c.boxes[i].keeper) continue;
            assert_int_equal(c.boxes[i].rank, lowest[c.boxes[i].tag]);
            assert_int_equal(keepers[c.boxes[i].tag]++, 0);
        }
        for (size_t i = 0; i < distinct; i++) assert_int_equal(keepers[i], 1);
    }
}

static void a_scalar_is_held_or_missing(void **state) {
    (void)state;
    uint64_t shape[DCP_MAX_DIMS] = {1};
    cover_box boxes[2] = {{.box = {.count = {1}}, .rank = 4}, {.box = {.count = {1}}, .rank = 2}};
    size_t first, second;
    assert_int_equal(core_cover_check(0, shape, boxes, 2, &first, &second), COVER_EXACT);
    assert_int_equal(boxes[0].rank, 2);
    assert_true(boxes[0].keeper && !boxes[1].keeper);
    assert_int_equal(core_cover_check(0, shape, NULL, 0, &first, &second), COVER_MISSING);
}

enum { MANY = 400000 };

/* Makes one long box beside `n - 1` strips that do not cross each other. On no dimension are all
 * boxes short. */
static void lay_strips(cover_box *boxes, size_t n, uint64_t *shape) {
    shape[0] = 2 * (n - 1);
    shape[1] = 3;
    boxes[0] = (cover_box){.box = {{0, 0}, {shape[0], 1}}};
    for (size_t i = 1; i < n; i++)
        boxes[i] = (cover_box){.box = {{2 * (i - 1), 1}, {2, 2}}, .rank = (int)i};
}

/* A comparison of all pairs would need minutes of CPU time; the limit ends it. */
static void many_strips_beside_a_long_box(void **state) {
    (void)state;
    const struct rlimit seconds = {60, 60};
    cover_box *boxes = calloc(MANY, sizeof *boxes);
    uint64_t shape[DCP_MAX_DIMS] = {0};
    size_t first, second;
    assert_int_equal(setrlimit(RLIMIT_CPU, &seconds), 0);
    assert_non_null(boxes);
    lay_strips(boxes, MANY, shape);
    assert_int_equal(core_cover_check(2, shape, boxes, MANY, &first, &second), COVER_EXACT);
    lay_strips(boxes, MANY, shape);
    boxes[MANY - 1].box.count[1]--;
    assert_int_equal(core_cover_check(2, shape, boxes, MANY, &first, &second), COVER_MISSING);
    dcp_box hole = core_cover_hole(2, shape, boxes, MANY);
    assert_int_equal(hole.start[0], shape[0] - 2);
    assert_int_equal(hole.start[1], 2);
    lay_strips(boxes, MANY, shape);
    boxes[MANY - 1].box.start[0]--; /* one hole and one overlap */
    assert_int_equal(core_cover_check(2, shape, boxes, MANY, &first, &second), COVER_OVERLAP);
    free(boxes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(partitions_are_exact),
        cmocka_unit_test(a_box_less_is_missing),
        cmocka_unit_test(a_moved_box_overlaps),
        cmocka_unit_test(of_equal_boxes_the_lowest_ranks_is_kept),
        cmocka_unit_test(a_scalar_is_held_or_missing),
        cmocka_unit_test(many_strips_beside_a_long_box),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
