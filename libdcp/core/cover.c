/* Whether boxes cover a tensor once is told by a sum over the boxes, without comparing any two. A
 * box is 1 at its elements and 0 elsewhere; boxes cover the tensor once where the sum of these
 * functions is the tensor's. A function is known by its differences along each dimension, which for
 * a box are +1 or -1 at its corners. With a number x(d, i) for each coordinate i of dimension d,
 * all corners together are the product over d of x(d, start) - x(d, end). Where the sum of the
 * boxes' products differs from the tensor's, it does so as a polynomial of degree 8 at most. At
 * random numbers modulo a prime p it would be equal by chance once in p / 8 times, p being 2^61
 * - 1.
 *
 * Only where boxes don't cover the tensor, two that overlap are looked for. Boxes are sorted by
 * their start on the dimension that is cut finest, so each is compared only with those that it can
 * touch on that dimension, and not with more than a bounded number in all. */
#include "core/cover.h"

#include <stdlib.h>
#include <sys/random.h>

#include "core/box.h"

#define PRIME ((1ULL << 61) - 1)
#define MOST_COMPARISONS ((uint64_t)1 << 26)

typedef unsigned __int128 product;

static uint64_t multiply(uint64_t a, uint64_t b) {
    product p = (product)a * b;
    uint64_t sum = (uint64_t)(p & PRIME) + (uint64_t)(p >> 61);
    return sum >= PRIME ? sum - PRIME : sum;
}

/* x(d, i), by splitmix64's mixing of a secret and the coordinate. */
static uint64_t number_of(uint64_t secret, uint64_t coordinate) {
    uint64_t x = secret + coordinate * 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return (x ^ (x >> 31)) % PRIME;
}

static uint64_t corners(uint32_t dims, const uint64_t *secrets, const uint64_t *start,
                        const uint64_t *count) {
    uint64_t all = 1;
    for (uint32_t d = 0; d < dims; d++) {
        uint64_t a = number_of(secrets[d], start[d]),
                 b = number_of(secrets[d], start[d] + count[d]);
        all = multiply(all, a >= b ? a - b : a + PRIME - b);
    }
    return all;
}

static int covers_once(uint32_t dims, const uint64_t *shape, const cover_box *boxes, size_t n) {
    uint64_t secrets[DCP_MAX_DIMS] = {1, 2, 3, 4, 5, 6, 7, 8}, sum = 0;
    const uint64_t zeros[DCP_MAX_DIMS] = {0};
    if (getentropy(secrets, sizeof secrets)) secrets[0] = (uintptr_t)boxes; /* next best */
    for (size_t i = 0; i < n; i++)
        if (boxes[i].keeper)
            sum = (sum + corners(dims, secrets, boxes[i].box.start, boxes[i].box.count)) % PRIME;
    return sum == corners(dims, secrets, zeros, shape);
}

static int by_box(const void *a, const void *b) {
    const cover_box *x = a, *y = b;
    for (int d = 0; d < DCP_MAX_DIMS; d++)
        if (x->box.start[d] != y->box.start[d]) return x->box.start[d] < y->box.start[d] ? -1 : 1;
    for (int d = 0; d < DCP_MAX_DIMS; d++)
        if (x->box.count[d] != y->box.count[d]) return x->box.count[d] < y->box.count[d] ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* Returns the volume of all keepers, or UINT64_MAX where that is larger. */
static uint64_t mark_keepers(uint32_t dims, cover_box *boxes, size_t n) {
    uint64_t elems = 0;
    for (size_t i = 0; i < n; i++) {
        boxes[i].keeper = !i || !core_box_equal(dims, &boxes[i].box, &boxes[i - 1].box);
        boxes[i].keeper_rank = boxes[i].keeper ? boxes[i].rank : boxes[i - 1].keeper_rank;
        uint64_t own = boxes[i].keeper ? dcp_box_elems(&boxes[i].box, dims) : 0;
        elems = own > UINT64_MAX - elems ? UINT64_MAX : elems + own;
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

/* Boxes ascend by their start on dimension 0. 0 also where it would take too long. */
static int find_overlap(uint32_t dims, const cover_box *boxes, size_t n, size_t *first,
                        size_t *second) {
    dcp_box shared;
    uint64_t left = MOST_COMPARISONS;
    for (size_t i = 0; i < n && left; i++) {
        if (!boxes[i].keeper) continue;
        uint64_t end = boxes[i].box.start[0] + boxes[i].box.count[0];
        for (size_t k = i + 1; k < n && boxes[k].box.start[0] < end && left; k++, left--)
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
    cover_box whole = {.box.count = {1}};
    for (uint32_t d = 0; d < ndim; d++) total *= whole.box.count[d] = shape[d];
    *first = *second = 0;
    swap_dimensions(&whole, 1, sweep);
    swap_dimensions(boxes, n, sweep);
    if (n) qsort(boxes, n, sizeof *boxes, by_box);
    uint64_t covered = mark_keepers(dims, boxes, n);
    int exact = covers_once(dims, whole.box.count, boxes, n);
    int overlap = !exact && find_overlap(dims, boxes, n, first, second);
    swap_dimensions(boxes, n, sweep);
    if (exact) return COVER_EXACT;
    return overlap || covered >= total ? COVER_OVERLAP : COVER_MISSING;
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

/* Halves the part, and goes on in a half that is not full, until nothing of it is covered. (Where
 * boxes overlap all the same, an element is left.) */
dcp_box core_cover_hole(uint32_t ndim, const uint64_t *shape, const cover_box *boxes, size_t n) {
    uint32_t dims = core_box_dims(ndim);
    dcp_box part = {{0}, {0}};
    for (uint32_t d = 0; d < dims; d++) part.count[d] = ndim ? shape[d] : 1;
    while (dcp_box_elems(&part, dims) > 1 && covered_in(dims, &part, boxes, n)) {
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
