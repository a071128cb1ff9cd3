/* The state dict (dcp/state.h) from inside. */
#pragma once

#include <stddef.h>

#include "dcp/state.h"

struct box_strides;
struct dcp_device;

typedef struct state_box {
    dcp_box box;
    void *data;           /* the first element; or, where it is NULL: */
    dcp_source_fn source; /* reads pieces of it; or, where that is NULL, too: */
    void *ctx;
    int rank;                        /* whose box it is; -1: the calling rank's */
    const struct dcp_device *device; /* the elements are at device_data of it */
    void *device_data;
    const struct box_strides *strides; /* of `data` (core/strides.h); NULL: it is dense */
} state_box;

typedef struct state_tensor {
    dcp_tensor tensor; /* shape[0] is 1 where ndim is 0 */
    uint64_t bytes;
    state_box *boxes; /* without empty ones */
    size_t n_boxes;
} state_tensor;

/* A tensor as a state stores it: in one block of memory, with room for one box. More boxes are
 * allocated apart. */
typedef struct state_kept {
    state_tensor tensor;
    state_box box; /* room for a single one */
    char path[];
} state_kept;

/* Asking for memory before it is needed. The tensors that planning walks over are spread over the
 * heap, and with thousands of them no cache holds them. A walk that asks for the tensor some steps
 * ahead does not wait for each. */
enum { PREFETCH_DISTANCE = 8, CACHE_LINE = 64 }; /* steps; bytes */

/* Any address will do, as nothing is read. */
static inline void core_prefetch(const void *memory, size_t bytes) {
    for (size_t at = 0; at < bytes; at += CACHE_LINE) __builtin_prefetch((const char *)memory + at);
}

static inline void core_state_prefetch_one(const state_tensor *tensor) {
    core_prefetch(tensor, sizeof(state_kept) + CACHE_LINE);
}

/* For a walk over the tensors of a state that is at number i. */
static inline void core_state_prefetch(state_tensor *const *tensors, size_t n, size_t i) {
    if (i + PREFETCH_DISTANCE < n) core_state_prefetch_one(tensors[i + PREFETCH_DISTANCE]);
}

struct dcp_state {
    state_tensor **tensors; /* in the order added */
    size_t n, capacity;
    void *by_path;                   /* tsearch tree of state_tensor */
    const struct dcp_device *device; /* of its boxes that are on one; NULL: none is */
    uint64_t device_bytes;           /* of those */
    int has_strides;                 /* some box has */
};

/* The tensors bytewise ascending by path; the caller frees the array. NULL: out of memory. */
state_tensor **core_state_sorted(const dcp_state *state);

/* Checks a tensor's path by itself; `what` is set to the reason it is refused. Returns 0 then. */
int core_path_valid(const char *path, const char **what);
