/* Boxes and runs. A run extends over the inner dimensions that the box spans completely in both
 * layouts, and over the next outer one, so a box cut only on dimension 0 is a single run. */
#include "core/box.h"

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

bool core_tensor_size(dcp_dtype dtype, uint32_t ndim, const uint64_t *shape, uint64_t *bytes) {
    uint64_t size = dcp_dtype_bytes(dtype);
    if (!size || ndim > DCP_MAX_DIMS) return false;
    bool empty = false;
    for (uint32_t d = 0; d < ndim; d++) empty |= !shape[d];
    for (uint32_t d = 0; d < ndim; d++) {
        /* the other dimensions of an empty tensor must not overflow either, since HDF5 multiplies
         * them */
        if (__builtin_mul_overflow(size, shape[d] ? shape[d] : 1, &size) || size >> 62)
            return false;
    }
    *bytes = empty ? 0 : size;
    return true;
}

bool core_tensor_same(const dcp_tensor *a, const dcp_tensor *b) {
    return a->dtype == b->dtype && a->ndim == b->ndim &&
           !memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape);
}

uint64_t dcp_tensor_bytes(const dcp_tensor *tensor) {
    uint64_t bytes = 0;
    return tensor && core_tensor_size(tensor->dtype, tensor->ndim, tensor->shape, &bytes) ? bytes
                                                                                          : 0;
}

/* Callers may pass invalid numbers of dimensions. */
static uint32_t dims_within(uint32_t ndim) { return ndim < DCP_MAX_DIMS ? ndim : DCP_MAX_DIMS; }

dcp_box dcp_box_whole(const dcp_tensor *tensor) {
    dcp_box box = {0};
    if (!tensor) return box;
    memcpy(box.count, tensor->shape, dims_within(tensor->ndim) * sizeof *box.count);
    if (!tensor->ndim) box.count[0] = 1;
    return box;
}

dcp_box dcp_box_chunk(const dcp_tensor *tensor, int rank, int world) {
    dcp_box box = dcp_box_whole(tensor);
    if (!tensor || rank < 0 || rank >= world) {
        box.count[0] = 0;
        return box;
    }
    if (!tensor->ndim) {
        box.count[0] = rank == 0;
        return box;
    }
    uint64_t rows = box.count[0], n = (uint64_t)world, r = (uint64_t)rank;
    uint64_t chunk = rows / n + (rows % n != 0);
    box.start[0] = chunk && r > rows / chunk ? rows : r * chunk;
    uint64_t left = rows - box.start[0];
    box.count[0] = left < chunk ? left : chunk;
    return box;
}

uint64_t dcp_box_elems(const dcp_box *box, uint32_t ndim) {
    uint64_t elems = 1;
    bool empty = false, too_many = false;
    if (!box) return 0;
    for (uint32_t d = 0; d < core_box_dims(dims_within(ndim)); d++) {
        empty |= !box->count[d];
        too_many |= __builtin_mul_overflow(elems, box->count[d], &elems);
    }
    return empty ? 0 : too_many ? UINT64_MAX : elems;
}

bool core_box_intersect(uint32_t ndim, const dcp_box *a, const dcp_box *b, dcp_box *out) {
    for (uint32_t d = 0; d < ndim; d++) {
        uint64_t end_a = a->start[d] + a->count[d], end_b = b->start[d] + b->count[d];
        uint64_t start = a->start[d] > b->start[d] ? a->start[d] : b->start[d];
        uint64_t end = end_a < end_b ? end_a : end_b;
        if (start >= end) return false;
        out->start[d] = start;
        out->count[d] = end - start;
    }
    return true;
}

bool core_box_equal(uint32_t ndim, const dcp_box *a, const dcp_box *b) {
    return !memcmp(a->start, b->start, ndim * sizeof *a->start) &&
           !memcmp(a->count, b->count, ndim * sizeof *a->count);
}

uint64_t dcp_box_slice(uint32_t ndim, const dcp_box *box, uint64_t first, uint64_t max_elems,
                       dcp_box *out) {
    uint64_t inner = dcp_box_elems(box, ndim), rest = first;
    if (!out) return 0;
    *out = box ? *box : (dcp_box){0};
    if (first >= inner || inner == UINT64_MAX) { /* includes an empty or NULL box */
        out->count[0] = 0;
        return 0;
    }
    for (uint32_t d = 0; d < dims_within(ndim); d++) {
        inner /= box->count[d];
        uint64_t index = rest / inner;
        rest %= inner;
        out->start[d] += index;
        if (rest == 0 && inner <= max_elems) {
            uint64_t rows = box->count[d] - index, most = max_elems / inner;
            out->count[d] = rows < most ? rows : most;
            return out->count[d] * inner;
        }
        out->count[d] = 1;
    }
    return 1;
}

void core_box_copy_init(box_copy *copy, uint32_t ndim, uint64_t elem_bytes, const uint64_t *count,
                        const uint64_t *shape_a, const uint64_t *start_a, const uint64_t *shape_b,
                        const uint64_t *start_b) {
    assert(ndim <= DCP_MAX_DIMS);
    copy->base_a = copy->base_b = 0;
    copy->run_bytes = elem_bytes;
    copy->runs = 1;
    copy->dims = 0;
    uint64_t stride_a = elem_bytes, stride_b = elem_bytes;
    bool merging = true;
    for (uint32_t d = ndim; d-- > 0;) {
        copy->base_a += start_a[d] * stride_a;
        copy->base_b += start_b[d] * stride_b;
        if (merging) {
            copy->run_bytes *= count[d];
            merging = count[d] == shape_a[d] && count[d] == shape_b[d];
        } else {
            copy->loop[copy->dims++] = (box_loop){count[d], stride_a, stride_b};
            copy->runs *= count[d];
        }
        stride_a *= shape_a[d];
        stride_b *= shape_b[d];
    }
    if (!copy->run_bytes) copy->runs = 0;
}

bool core_box_copy_between(box_copy *copy, uint32_t ndim, uint64_t elem_bytes, const dcp_box *a,
                           const dcp_box *b) {
    uint32_t dims = core_box_dims(ndim);
    uint64_t start_a[DCP_MAX_DIMS], start_b[DCP_MAX_DIMS];
    dcp_box shared;
    if (!core_box_intersect(dims, a, b, &shared)) {
        memset(copy, 0, sizeof *copy);
        return false;
    }
    for (uint32_t d = 0; d < dims; d++) {
        start_a[d] = shared.start[d] - a->start[d];
        start_b[d] = shared.start[d] - b->start[d];
    }
    core_box_copy_init(copy, dims, elem_bytes, shared.count, a->count, start_a, b->count, start_b);
    return true;
}

const box_copy *core_box_copy_keep(const box_copy *copy) {
    size_t bytes = offsetof(box_copy, loop) + copy->dims * sizeof *copy->loop;
    void *kept = malloc(bytes);
    return kept ? memcpy(kept, copy, bytes) : NULL;
}

void core_box_copy_run(const box_copy *copy, uint64_t i, uint64_t *offset_a, uint64_t *offset_b) {
    assert(i < copy->runs);
    uint64_t a = copy->base_a, b = copy->base_b;
    for (uint32_t d = 0; d < copy->dims; d++) {
        const box_loop *loop = &copy->loop[d];
        uint64_t at = i % loop->count;
        i /= loop->count;
        a += at * loop->stride_a;
        b += at * loop->stride_b;
    }
    *offset_a = a;
    *offset_b = b;
}

uint64_t core_box_copy_find(const box_copy *copy, uint64_t offset) {
    uint64_t low = 0, high = copy->runs;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2, a, b;
        core_box_copy_run(copy, middle, &a, &b);
        if (a + copy->run_bytes > offset)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

void core_box_print(uint32_t ndim, const dcp_box *box, char *text, size_t size) {
    size_t used = (size_t)snprintf(text, size, "[");
    for (uint32_t d = 0; d < ndim && used < size; d++)
        used += (size_t)snprintf(text + used, size - used, "%s%llu:%llu", d ? ", " : "",
                                 (unsigned long long)box->start[d],
                                 (unsigned long long)(box->start[d] + box->count[d]));
    if (used < size) snprintf(text + used, size - used, "]");
}

void core_shape_print(uint32_t ndim, const uint64_t *shape, char *text, size_t size) {
    size_t used = (size_t)snprintf(text, size, "[");
    for (uint32_t d = 0; d < ndim && used < size; d++)
        used += (size_t)snprintf(text + used, size - used, "%s%llu", d ? ", " : "",
                                 (unsigned long long)shape[d]);
    if (used < size) snprintf(text + used, size - used, "]");
}

/* A sum over the boxes shows whether they cover a tensor exactly once; no pairs are compared. The
 * indicator function of a box is 1 at its elements and 0 elsewhere. Boxes cover the tensor exactly
 * once if their indicator functions add up to the tensor's. An indicator function is determined by
 * its differences along all dimensions, which are +1 or -1 at the corners of the box and 0
 * elsewhere. Let there be a number x(d, i) for each coordinate i of each dimension d. If each
 * corner's difference is multiplied by its coordinates' numbers, the sum over the corners is the
 * product over d of x(d, start) - x(d, end). The sum of the boxes' products minus the tensor's
 * product is a polynomial in these numbers, of degree at most 8. It is zero if the boxes cover the
 * tensor exactly once. Otherwise it is zero at random numbers modulo a prime p with a probability
 * of at most 8 / p; p is 2^61 - 1.
 *
 * If boxes do not cover the tensor exactly once, find_overlap searches for a pair that overlaps.
 * The boxes are sorted by their start on the dimension that is cut finest, so each is compared only
 * with those that it can touch on that dimension. The total number of comparisons is bounded. */

#define PRIME ((1ULL << 61) - 1)
#define MOST_COMPARISONS ((uint64_t)1 << 26)

typedef unsigned __int128 product;

static uint64_t multiply(uint64_t a, uint64_t b) {
    product p = (product)a * b;
    uint64_t sum = (uint64_t)(p & PRIME) + (uint64_t)(p >> 61);
    return sum >= PRIME ? sum - PRIME : sum;
}

/* Returns x(d, i), by splitmix64's mixing of a secret and the coordinate. */
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

static bool covers_once(uint32_t dims, const uint64_t *shape, const cover_box *boxes, size_t n) {
    uint64_t secrets[DCP_MAX_DIMS] = {1, 2, 3, 4, 5, 6, 7, 8}, sum = 0;
    const uint64_t zeros[DCP_MAX_DIMS] = {0};
    if (getentropy(secrets, sizeof secrets)) secrets[0] = (uintptr_t)boxes; /* less random */
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

/* Marks the keepers, and returns their total number of elements, or UINT64_MAX if that
 * overflows. */
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

/* Finds two keepers that overlap. The boxes are sorted by their start on dimension 0. Also returns
 * false if the search takes too long. */
static bool find_overlap(uint32_t dims, const cover_box *boxes, size_t n, size_t *first,
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
                return true;
            }
    }
    return false;
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
    bool exact = covers_once(dims, whole.box.count, boxes, n);
    bool overlap = !exact && find_overlap(dims, boxes, n, first, second);
    swap_dimensions(boxes, n, sweep);
    if (exact) return COVER_EXACT;
    return overlap || covered >= total ? COVER_OVERLAP : COVER_MISSING;
}

/* Returns how many elements of `part` are in the boxes. Elements in which boxes overlap count
 * several times. */
static uint64_t covered_in(uint32_t dims, const dcp_box *part, const cover_box *boxes, size_t n) {
    uint64_t elems = 0;
    dcp_box shared;
    for (size_t i = 0; i < n; i++)
        if (boxes[i].keeper && core_box_intersect(dims, part, &boxes[i].box, &shared))
            elems += dcp_box_elems(&shared, dims);
    return elems;
}

/* Extends the part to the whole tensor in each dimension, unless that would add covered
 * elements. */
static void widen(uint32_t ndim, const uint64_t *shape, const cover_box *boxes, size_t n,
                  dcp_box *part) {
    for (uint32_t d = 0; d < ndim; d++) {
        dcp_box wider = *part;
        wider.start[d] = 0;
        wider.count[d] = shape[d];
        if (!covered_in(ndim, &wider, boxes, n)) *part = wider;
    }
}

/* Halves the part repeatedly, and continues with a half that is not completely covered, until no
 * element of the part is covered. If boxes overlap, the part may end as a single element. */
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
