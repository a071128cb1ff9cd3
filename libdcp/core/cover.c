/* Disjoint boxes whose volumes add up to the tensor's cover it. Boxes are swept in the order of
 * their starts, so each is compared only with those that reach into it on dimension 0. */
#include "core/cover.h"

#include <stdlib.h>
#include <string.h>

#include "core/box.h"

static int by_box(const void *a, const void *b) {
    const cover_box *x = a, *y = b;
    for (int d = 0; d < DCP_MAX_DIMS; d++)
        if (x->box.start[d] != y->box.start[d]) return x->box.start[d] < y->box.start[d] ? -1 : 1;
    for (int d = 0; d < DCP_MAX_DIMS; d++)
        if (x->box.count[d] != y->box.count[d]) return x->box.count[d] < y->box.count[d] ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

static uint64_t mark_keepers(uint32_t dims, cover_box *boxes, size_t n) {
    uint64_t elems = 0;
    for (size_t i = 0; i < n; i++) {
        boxes[i].keeper = !i || !box_equal(dims, &boxes[i].box, &boxes[i - 1].box);
        if (boxes[i].keeper) elems += dcp_box_elems(&boxes[i].box, dims);
    }
    return elems;
}

cover_result cover_check(uint32_t ndim, const uint64_t *shape, cover_box *boxes, size_t n,
                         size_t *first, size_t *second) {
    uint32_t dims = box_dims(ndim);
    if (n) qsort(boxes, n, sizeof *boxes, by_box);
    uint64_t covered = mark_keepers(dims, boxes, n), total = 1;
    for (uint32_t d = 0; d < dims; d++) total *= ndim ? shape[d] : 1;
    for (size_t i = 0; i < n; i++) {
        if (!boxes[i].keeper) continue;
        uint64_t end = boxes[i].box.start[0] + boxes[i].box.count[0];
        for (size_t k = i + 1; k < n && boxes[k].box.start[0] < end; k++) {
            dcp_box shared;
            if (boxes[k].keeper && box_intersect(dims, &boxes[i].box, &boxes[k].box, &shared)) {
                *first = i;
                *second = k;
                return COVER_OVERLAP;
            }
        }
    }
    return covered == total ? COVER_EXACT : COVER_MISSING;
}
