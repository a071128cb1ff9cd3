/* Boxes and runs. A loop over runs merges the inner dimensions that both layouts hold whole, so a
 * box cut on dimension 0 is a single run. */
#include "core/box.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int core_tensor_size(dcp_dtype dtype, uint32_t ndim, const uint64_t *shape, uint64_t *bytes) {
    uint64_t size = dcp_dtype_bytes(dtype);
    if (!size || ndim > DCP_MAX_DIMS) return 0;
    int empty = 0;
    for (uint32_t d = 0; d < ndim; d++) empty |= !shape[d];
    for (uint32_t d = 0; d < ndim; d++) {
        /* the other dimensions of an empty tensor still have to be sane: HDF5 multiplies them */
        if (__builtin_mul_overflow(size, shape[d] ? shape[d] : 1, &size) || size >> 62) return 0;
    }
    *bytes = empty ? 0 : size;
    return 1;
}

int core_tensor_same(const dcp_tensor *a, const dcp_tensor *b) {
    return a->dtype == b->dtype && a->ndim == b->ndim &&
           !memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape);
}

uint64_t dcp_tensor_bytes(const dcp_tensor *tensor) {
    uint64_t bytes = 0;
    return tensor && core_tensor_size(tensor->dtype, tensor->ndim, tensor->shape, &bytes) ? bytes
                                                                                          : 0;
}

/* Callers' numbers of dimensions are not trusted. */
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
    int empty = 0, too_many = 0;
    if (!box) return 0;
    for (uint32_t d = 0; d < core_box_dims(dims_within(ndim)); d++) {
        empty |= !box->count[d];
        too_many |= __builtin_mul_overflow(elems, box->count[d], &elems);
    }
    return empty ? 0 : too_many ? UINT64_MAX : elems;
}

int core_box_intersect(uint32_t ndim, const dcp_box *a, const dcp_box *b, dcp_box *out) {
    for (uint32_t d = 0; d < ndim; d++) {
        uint64_t end_a = a->start[d] + a->count[d], end_b = b->start[d] + b->count[d];
        uint64_t start = a->start[d] > b->start[d] ? a->start[d] : b->start[d];
        uint64_t end = end_a < end_b ? end_a : end_b;
        if (start >= end) return 0;
        out->start[d] = start;
        out->count[d] = end - start;
    }
    return 1;
}

int core_box_equal(uint32_t ndim, const dcp_box *a, const dcp_box *b) {
    return !memcmp(a->start, b->start, ndim * sizeof *a->start) &&
           !memcmp(a->count, b->count, ndim * sizeof *a->count);
}

uint64_t dcp_box_slice(uint32_t ndim, const dcp_box *box, uint64_t first, uint64_t max_elems,
                       dcp_box *out) {
    uint64_t inner = dcp_box_elems(box, ndim), rest = first;
    if (!out) return 0;
    *out = box ? *box : (dcp_box){0};
    if (first >= inner || inner == UINT64_MAX) { /* also of a box that is empty, or is none */
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
    copy->base_a = copy->base_b = 0;
    copy->run_bytes = elem_bytes;
    copy->runs = 1;
    copy->dims = 0;
    uint64_t stride_a = elem_bytes, stride_b = elem_bytes;
    int merging = 1;
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

int core_box_copy_between(box_copy *copy, uint32_t ndim, uint64_t elem_bytes, const dcp_box *a,
                          const dcp_box *b) {
    uint32_t dims = core_box_dims(ndim);
    uint64_t start_a[DCP_MAX_DIMS], start_b[DCP_MAX_DIMS];
    dcp_box shared;
    if (!core_box_intersect(dims, a, b, &shared)) {
        memset(copy, 0, sizeof *copy);
        return 0;
    }
    for (uint32_t d = 0; d < dims; d++) {
        start_a[d] = shared.start[d] - a->start[d];
        start_b[d] = shared.start[d] - b->start[d];
    }
    core_box_copy_init(copy, dims, elem_bytes, shared.count, a->count, start_a, b->count, start_b);
    return 1;
}

const box_copy *core_box_copy_keep(const box_copy *copy) {
    size_t bytes = offsetof(box_copy, loop) + copy->dims * sizeof *copy->loop;
    void *kept = malloc(bytes);
    return kept ? memcpy(kept, copy, bytes) : NULL;
}

void core_box_copy_run(const box_copy *copy, uint64_t i, uint64_t *offset_a, uint64_t *offset_b) {
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
