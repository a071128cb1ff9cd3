/* Boxes that do not overlap cover the tensor where their volumes add up to its own. Boxes are
 * sorted by their start on the dimension that is cut finest. So each is compared only with those
 * that it can touch on that dimension. */
#include "core/cover.h"

#include <stdlib.h>

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
        boxes[i].keeper = !i || !core_box_equal(dims, &boxes[i].box, &boxes[i - 1].box);
        boxes[i].keeper_rank = boxes[i].keeper ? boxes[i].rank : boxes[i - 1].keeper_rank;
        if (boxes[i].keeper) elems += dcp_box_elems(&boxes[i].box, dims);
    }
    return elems;
}

uint32_t core_cover_finest(uint32_t ndim, const uint64_t *shape, const cover_box *boxes, size_t n) {
    uint32_t best = 0;
    double best_cuts = 0;
    for (uint32_t d = 0; d < ndim; d++) {
        uint64_t longest = 1;
        for (size_t i = 0; i < n; i++)
            if (boxes[i].box.count[d] > longest) longest = boxes[i].box.count[d];
        double cuts = (double)shape[d] / (double)longest;
        if (cuts > best_cuts) {
            best_cuts = cuts;
            best = d;
        }
    }
    return best;
}

static void swap_dimensions(cover_box *boxes, size_t n, uint32_t d) {
    for (size_t i = 0; d && i < n; i++) {
        dcp_box *b = &boxes[i].box;
        uint64_t start = b->start[0], count = b->count[0];
        b->start[0] = b->start[d];
        b->count[0] = b->count[d];
        b->start[d] = start;
        b->count[d] = count;
    }
}

/* Boxes ascend by their start on dimension 0. */
static int find_overlap(uint32_t dims, const cover_box *boxes, size_t n, size_t *first,
                        size_t *second) {
    dcp_box shared;
    for (size_t i = 0; i < n; i++) {
        if (!boxes[i].keeper) continue;
        uint64_t end = boxes[i].box.start[0] + boxes[i].box.count[0];
        for (size_t k = i + 1; k < n && boxes[k].box.start[0] < end; k++)
            if (boxes[k].keeper &&
                core_box_intersect(dims, &boxes[i].box, &boxes[k].box, &shared)) {
                *first = i;
                *second = k;
                return 1;
            }
    }
    return 0;
}

cover_result core_cover_check(uint32_t ndim, const uint64_t *shape, cover_box *boxes, size_t n,
                              size_t *first, size_t *second) {
    uint32_t dims = core_box_dims(ndim), sweep = core_cover_finest(ndim, shape, boxes, n);
    uint64_t total = 1;
    for (uint32_t d = 0; d < dims; d++) total *= ndim ? shape[d] : 1;
    swap_dimensions(boxes, n, sweep);
    if (n) qsort(boxes, n, sizeof *boxes, by_box);
    uint64_t covered = mark_keepers(dims, boxes, n);
    int overlap = find_overlap(dims, boxes, n, first, second);
    swap_dimensions(boxes, n, sweep);
    return overlap ? COVER_OVERLAP : covered == total ? COVER_EXACT : COVER_MISSING;
}

/* Elements of `part` in boxes; they don't overlap. */
static uint64_t covered_in(uint32_t dims, const dcp_box *part, const cover_box *boxes, size_t n) {
    uint64_t elems = 0;
    dcp_box shared;
    for (size_t i = 0; i < n; i++)
        if (boxes[i].keeper && core_box_intersect(dims, part, &boxes[i].box, &shared))
            elems += dcp_box_elems(&shared, dims);
    return elems;
}

/* Makes the part as wide as the tensor in each dimension, where nothing there is covered either. */
static void widen(uint32_t ndim, const uint64_t *shape, const cover_box *boxes, size_t n,
                  dcp_box *part) {
    for (uint32_t d = 0; d < ndim; d++) {
        dcp_box wider = *part;
        wider.start[d] = 0;
        wider.count[d] = shape[d];
        if (!covered_in(ndim, &wider, boxes, n)) *part = wider;
    }
}

/* Halves the part, and goes on in a half that is not full, until nothing of it is covered. */
dcp_box core_cover_hole(uint32_t ndim, const uint64_t *shape, const cover_box *boxes, size_t n) {
    uint32_t dims = core_box_dims(ndim);
    dcp_box part = {{0}, {0}};
    for (uint32_t d = 0; d < dims; d++) part.count[d] = ndim ? shape[d] : 1;
    while (covered_in(dims, &part, boxes, n)) {
        uint32_t longest = 0;
        for (uint32_t d = 1; d < dims; d++)
            if (part.count[d] > part.count[longest]) longest = d;
        dcp_box half = part;
        half.count[longest] /= 2;
        part.start[longest] += half.count[longest];
        part.count[longest] -= half.count[longest];
        if (covered_in(dims, &half, boxes, n) < dcp_box_elems(&half, dims)) part = half;
    }
    widen(ndim, shape, boxes, n, &part);
    return part;
}
