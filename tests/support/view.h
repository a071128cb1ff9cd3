/* Boxes in memory that is not dense, in which every other byte is known: tests of strides use them
 * to place elements one by one. */
#ifndef TESTS_SUPPORT_VIEW_H
#define TESTS_SUPPORT_VIEW_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "dcp/dcp.h"

enum { VIEW_UNTOUCHED = 0x5a };

typedef enum view_way {
    VIEW_COLUMNS,  /* of a matrix: more of the last dimension on both sides */
    VIEW_GHOSTS,   /* one additional cell on all sides */
    VIEW_PADDED,   /* rows with an odd number of additional bytes */
    VIEW_FORTRAN,  /* the first dimension's elements are neighbours */
    VIEW_REVERSED, /* from the last element to the first */
    VIEW_MIXED,    /* every second element, the last two dimensions swapped, one reversed */
    VIEW_WAYS
} view_way;

typedef struct view {
    uint32_t ndim;
    size_t elem_bytes, bytes;
    uint64_t count[DCP_MAX_DIMS];
    int64_t strides[DCP_MAX_DIMS];
    unsigned char *memory, *data; /* all of it; the first element */
} view;

static inline void view_order(view_way way, uint32_t ndim, uint32_t *order) {
    for (uint32_t k = 0; k < ndim; k++) order[k] = way == VIEW_FORTRAN ? k : ndim - 1 - k;
    if (way != VIEW_MIXED || ndim < 2) return;
    order[0] = ndim - 2;
    order[1] = ndim - 1;
}

/* Allocates the memory and fills it with VIEW_UNTOUCHED. */
static inline void view_make(view *v, view_way way, uint32_t ndim, size_t elem_bytes,
                             const uint64_t *count) {
    uint32_t order[DCP_MAX_DIMS]; /* ascending by stride */
    uint64_t stride = elem_bytes, first = 0;
    *v = (view){.ndim = ndim, .elem_bytes = elem_bytes};
    memcpy(v->count, count, ndim * sizeof *count);
    view_order(way, ndim, order);
    for (uint32_t k = 0; k < ndim; k++) {
        const uint32_t d = order[k];
        const uint64_t gap = way == VIEW_MIXED ? 2 : 1;
        const uint64_t edge = way == VIEW_GHOSTS || (way == VIEW_COLUMNS && k == 0);
        const int reversed = way == VIEW_REVERSED || (way == VIEW_MIXED && k == 0);
        v->strides[d] = (int64_t)(reversed ? -(stride * gap) : stride * gap);
        first += (reversed ? (count[d] - 1) * gap : edge) * stride;
        stride *= (count[d] - 1) * gap + 1 + 2 * edge;
        stride += way == VIEW_PADDED && k == 0 ? 3 : 0;
    }
    v->bytes = stride + elem_bytes;
    v->memory = malloc(v->bytes);
    if (!v->memory) abort();
    memset(v->memory, VIEW_UNTOUCHED, v->bytes);
    v->data = v->memory + first;
}

static inline void view_free(view *v) { free(v->memory); }

/* The address of element number `i` of the box, in row-major order. */
static inline unsigned char *view_at(const view *v, uint64_t i) {
    unsigned char *at = v->data;
    for (uint32_t d = v->ndim; d-- > 0;) {
        at += (int64_t)(i % v->count[d]) * v->strides[d];
        i /= v->count[d];
    }
    return at;
}

static inline uint64_t view_elems(const view *v) {
    uint64_t elems = 1;
    for (uint32_t d = 0; d < v->ndim; d++) elems *= v->count[d];
    return elems;
}

static inline void view_fill(view *v, const unsigned char *dense) {
    for (uint64_t i = 0; i < view_elems(v); i++)
        memcpy(view_at(v, i), dense + i * v->elem_bytes, v->elem_bytes);
}

static inline void view_take(const view *v, unsigned char *dense) {
    for (uint64_t i = 0; i < view_elems(v); i++)
        memcpy(dense + i * v->elem_bytes, view_at(v, i), v->elem_bytes);
}

/* Returns 1 if it has these elements and nothing else of its memory was touched. */
static inline int view_is(const view *v, const unsigned char *dense) {
    view want = *v;
    want.memory = malloc(v->bytes);
    if (!want.memory) abort();
    memset(want.memory, VIEW_UNTOUCHED, v->bytes);
    want.data = want.memory + (v->data - v->memory);
    view_fill(&want, dense);
    const int same = memcmp(want.memory, v->memory, v->bytes) == 0;
    view_free(&want);
    return same;
}

#endif
