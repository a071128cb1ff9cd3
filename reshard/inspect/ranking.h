/* Counts tensors by module, and orders the tensors or modules of a comparison by how much they
 * differ. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <dcp/tensor.h>

#include "inspect/differences.h"

/* Tensors are counted by module. Dots and slashes in their names separate the levels of modules. */

#define MODULES_DEPTH 16 /* the deepest level */

typedef struct inspect_module {
    const char *path; /* the path of a tensor in the module; borrowed */
    size_t length;    /* the length of the path's part that names the module */
    size_t own;       /* the position at which the last part of the module's name begins */
    unsigned depth;   /* 1: below the section */
    uint64_t tensors, elems, bytes;
} inspect_module;

typedef struct inspect_modules {
    inspect_module *list; /* in the order of the tensors, each module before its submodules */
    size_t n;
    size_t open[MODULES_DEPTH]; /* indices of the modules that contain the last tensor */
    unsigned depth, most;       /* the number of open modules; the requested depth */
} inspect_modules;

/* Adds a tensor to its modules: "/section/a.b.weight" to the modules a and a.b. Call it in
 * ascending order of paths. A tensor outside of modules is a module itself. Returns 0, or -1 if out
 * of memory. */
int inspect_modules_add(inspect_modules *m, const dcp_tensor *tensor);
void inspect_modules_free(inspect_modules *m);

/* Returns the kind of a tensor: its section, or for the optimizer's tensors the slot, such as
 * "exp_avg". */
const char *inspect_modules_kind(const char *path, size_t *length);

/* The order of a comparison's tensors or modules. */

typedef enum inspect_rank {
    RANK_PATH, /* ascending; all others are descending */
    RANK_RELATIVE,
    RANK_MAX,
    RANK_MEAN,
    RANK_DIFFERING,
    RANKS,
} inspect_rank;

/* "relative" and so on; NULL for RANK_PATH. */
extern const char *const inspect_ranking_names[RANKS];

/* Returns the sorted rows: an array of d->n elements to be freed with free(), or NULL if out of
 * memory. First come tensors without a finite difference: tensors whose shapes differ, tensors in
 * only one checkpoint, and tensors with NaN. Rows with equal amounts are in the order of paths. */
const inspect_diff_row **inspect_ranking_rows(const inspect_differences *d, inspect_rank by);

/* A module of the comparison: numbers of tensors, and sums over them. */
typedef struct inspect_ranked_module {
    const char *path; /* the path of a tensor in the module; borrowed */
    size_t length;    /* the length of the path's part that names the module */
    size_t tensors, unlike;
    size_t unmeasured;      /* tensors that differ in shape, or are in only one checkpoint */
    uint64_t elems;         /* elements of the measured tensors */
    inspect_diff_sums sums; /* sums over the measured tensors */
} inspect_ranked_module;

/* Ranks the modules that are `depth` levels deep. Without `all`, lists only modules with a tensor
 * that differs. Free *out with free(). Returns 0, or -1 if out of memory. */
int inspect_ranking_modules(const inspect_differences *d, unsigned depth, inspect_rank by, bool all,
                            inspect_ranked_module **out, size_t *n);
