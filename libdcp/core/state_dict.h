/* Internals of the state dict (dcp/state.h). */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "dcp/state.h"

struct box_strides;
struct dcp_device;

typedef struct state_box {
    dcp_box box;
    void *data;           /* the address of the first element; NULL: not in the host's memory */
    dcp_source_fn source; /* reads pieces of the box (dcp_state_add_source); NULL: none */
    void *ctx;
    int rank; /* the rank that holds the box in a sharded save; -1: the calling rank */
    /* the device whose memory holds the elements, at device_data */
    const struct dcp_device *device;
    void *device_data;
    const struct box_strides *strides; /* strides of `data` (core/strides.h); NULL: dense */
} state_box;

typedef struct state_tensor {
    dcp_tensor tensor; /* shape[0] is 1 if ndim is 0 */
    uint64_t bytes;
    state_box *boxes; /* without empty boxes */
    size_t n_boxes;
} state_tensor;

/* A tensor as a state stores it: in one block of memory, with room for one box. More boxes are
 * allocated separately. */
typedef struct state_entry {
    state_tensor tensor;
    state_box box; /* room for a single box */
    bool is_part;  /* its memory is part of a state_block */
    char path[];
} state_entry;

/* Prefetching memory. The tensors that planning walks over are spread over the heap, and with
 * thousands of them no cache holds them all. A walk that prefetches the tensor some steps ahead
 * need not wait for each tensor. */
enum { PREFETCH_DISTANCE = 8, CACHE_LINE = 64 }; /* in steps; in bytes */

/* `memory` may be any address, since a prefetch never faults. */
static inline void core_prefetch(const void *memory, size_t bytes) {
    for (size_t at = 0; at < bytes; at += CACHE_LINE) __builtin_prefetch((const char *)memory + at);
}

static inline void core_state_prefetch_one(const state_tensor *tensor) {
    core_prefetch(tensor, sizeof(state_entry) + CACHE_LINE);
}

/* Called by a walk over the tensors of a state when it has reached tensor i. */
static inline void core_state_prefetch(state_tensor *const *tensors, size_t n, size_t i) {
    if (i + PREFETCH_DISTANCE < n) core_state_prefetch_one(tensors[i + PREFETCH_DISTANCE]);
}

/* Memory for tensors that are added many at a time. */
typedef struct state_block {
    struct state_block *next;
    _Alignas(8) char memory[];
} state_block;

struct dcp_state {
    state_tensor **tensors; /* unordered */
    size_t n, capacity;
    state_tensor **sorted; /* the tensors that were added many at a time, sorted by path */
    size_t n_sorted;
    state_block *blocks;
    void *by_path; /* a tree (tsearch(3)) of the tensors that are not in `sorted` */
    const struct dcp_device *device; /* the device of its boxes; NULL: none is on a device */
    uint64_t device_bytes;           /* total size of the boxes on the device */
    bool has_strides;                /* at least one box has strides */
    /* time of the last change; distinguishes a state from an earlier one at the same address */
    double changed;
};

/* Returns the tensors sorted bytewise by path; the caller frees the array. NULL: out of memory. */
state_tensor **core_state_sorted(const dcp_state *state);

/* Checks the syntax of a tensor's path. Returns false if it is refused, with the reason in
 * `what`. */
bool core_path_valid(const char *path, const char **what);

/* The sections that the library distinguishes; a section is the first name in a path. The library
 * warns if a training step has changed only one of /model and /optimizer. A load that must use all
 * stored tensors need not use those in /files, where an import stores a model's own files for a
 * later export. All other sections are treated alike. */
typedef enum core_section {
    CORE_SECTION_MODEL,
    CORE_SECTION_OPTIMIZER,
    CORE_SECTION_FILES,
    CORE_SECTION_OTHER,
    CORE_SECTIONS
} core_section;

/* Returns the section of a tensor's path. */
core_section core_section_of(const char *path);

/* How many tensors of each section have changed since an earlier step, and how many have not;
 * tensors without bytes do not count. */
typedef struct core_section_changes {
    size_t changed[CORE_SECTIONS], unchanged[CORE_SECTIONS];
} core_section_changes;

/* Judges the training between the steps `before` and `step` by these changes. `text` becomes a
 * description of what is probably wrong; "" if nothing is. */
void core_section_diagnose(const core_section_changes *c, uint64_t step, uint64_t before,
                           char *text, size_t size);

/* Functions that core/state_dict.c, which adds one box at a time, and core/state_many.c share. */

/* Checks a tensor and its box `at` (NULL: the whole tensor), and copies `at` to box->box. *bytes
 * becomes the tensor's size. *empty becomes 1 if the box has no elements and is not stored. */
int core_state_check(const dcp_tensor *tensor, const dcp_box *at, state_box *box, uint64_t *bytes,
                     bool *empty, dcp_error *err);

/* Returns the tensor with that path; NULL: it does not exist. */
state_tensor *core_state_find(const dcp_state *state, const char *path);

/* Returns DCP_ERR_ARG if a folder that contains `path` is a tensor of the state, or if `path` is a
 * folder that contains such a tensor: in HDF5 a path names either a dataset or a group. */
int core_state_check_folders(const dcp_state *state, const char *path, dcp_error *err);

/* Returns DCP_ERR_MISMATCH if the tensor differs from `as`, which has the same path. */
int core_state_check_same(const dcp_tensor *tensor, const dcp_tensor *as, dcp_error *err);

/* Makes a tensor without boxes, which does not belong to a state yet, in `memory` of
 * core_state_tensor_bytes bytes. */
state_tensor *core_state_init_tensor(void *memory, const dcp_tensor *tensor, size_t path_length);
size_t core_state_tensor_bytes(size_t path_length);
/* Frees the tensor's boxes, and its own memory unless that is part of a block. */
void core_state_free_tensor(state_tensor *tensor);
void core_state_free_blocks(state_block *blocks);

/* Makes room in state->tensors for `more` tensors. Returns false if memory is short. */
bool core_state_reserve(dcp_state *state, size_t more);

/* The comparison for tsearch and related functions on state->by_path. */
int core_state_compare(const void *a, const void *b);

/* Merges two lists that are sorted by path. `b` may be the last m elements of `out`. */
void core_state_merge(state_tensor *const *a, size_t n, state_tensor *const *b, size_t m,
                      state_tensor **out);
