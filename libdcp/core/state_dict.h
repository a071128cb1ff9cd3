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
    int is_part;   /* its memory is part of a state_block */
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

/* Memory for tensors that come many at a time. */
typedef struct state_block {
    struct state_block *next;
    _Alignas(8) char memory[];
} state_block;

struct dcp_state {
    state_tensor **tensors; /* in no order */
    size_t n, capacity;
    state_tensor **sorted; /* those that came many at a time, ascending by path */
    size_t n_sorted;
    state_block *blocks;
    void *by_path;                   /* tsearch tree of the others */
    const struct dcp_device *device; /* of its boxes that are on one; NULL: none is */
    uint64_t device_bytes;           /* of those */
    int has_strides;                 /* some box has */
    double changed;                  /* when: so no two states at one address are taken for one */
};

/* The tensors bytewise ascending by path; the caller frees the array. NULL: out of memory. */
state_tensor **core_state_sorted(const dcp_state *state);

/* Checks a tensor's path by itself; `what` is set to the reason it is refused. Returns 0 then. */
int core_path_valid(const char *path, const char **what);

/* What adding a box does, one at a time (core/state_dict.c) or many (core/state_many.c). */

/* Checks a tensor by itself and its box `at`, NULL: the whole, which becomes that of `box`.
 * *bytes: the tensor's. *empty: the box has no elements, and is not kept. */
int core_state_check(const dcp_tensor *tensor, const dcp_box *at, state_box *box, uint64_t *bytes,
                     int *empty, dcp_error *err);

/* The tensor of that path; NULL: there is none. */
state_tensor *core_state_find(const dcp_state *state, const char *path);

/* DCP_ERR_ARG where a folder of the path is a tensor of the state, or a tensor lies in the path. */
int core_state_check_folders(const dcp_state *state, const char *path, dcp_error *err);

/* DCP_ERR_MISMATCH: the tensor is not `as`, which has the same path. */
int core_state_check_same(const dcp_tensor *tensor, const dcp_tensor *as, dcp_error *err);

/* A tensor without boxes, which is in no state, in `memory` of core_state_bytes of it. */
state_tensor *core_state_place(void *memory, const dcp_tensor *tensor, size_t path_length);
size_t core_state_bytes(size_t path_length);
/* The tensor's boxes, and its own memory unless that is part of a block. */
void core_state_free(state_tensor *tensor);
void core_state_free_blocks(state_block *blocks);

/* Room in state->tensors for so many more. 0: out of memory. */
int core_state_reserve(dcp_state *state, size_t more);

/* What tsearch and its like compare in state->by_path. */
int core_state_compare(const void *a, const void *b);

/* Merges two lists that ascend by path. `b` may be the end of `out`. */
void core_state_merge(state_tensor *const *a, size_t n, state_tensor *const *b, size_t m,
                      state_tensor **out);
