/* Ranks the tensors of a comparison, or their modules, by how much they differ. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <dcp/tensor.h>

#include "inspect/differences.h"

/* Tensors counted by module, as given by the dots and slashes in their names. */

#define MODULES_DEPTH 16 /* the deepest level */

typedef struct inspect_module {
    const char *path; /* of a tensor in the module; borrowed */
    size_t length;    /* how much of the path names the module */
    size_t own;       /* where the last part of its name begins */
    unsigned depth;   /* 1: below the section */
    uint64_t tensors, elems, bytes;
} inspect_module;

typedef struct inspect_modules {
    inspect_module *list; /* each module before its submodules, in the tensors' order */
    size_t n;
    size_t open[MODULES_DEPTH]; /* the modules of the last tensor */
    unsigned depth, most;       /* the number of open modules; the depth that was requested */
} inspect_modules;

/* Adds a tensor, "/section/a.b.weight", to the modules a and a.b; tensors arrive in ascending order
 * of paths. A tensor without a module is a module itself. Returns 0, or -1 if out of memory. */
int inspect_modules_add(inspect_modules *m, const dcp_tensor *tensor);
void inspect_modules_free(inspect_modules *m);

/* The kind of a tensor: its section; for the optimizer, what follows the section: "exp_avg". */
const char *inspect_modules_kind(const char *path, size_t *length);

/* The tensors of a comparison, or their modules, by how much they differ. */

typedef enum inspect_rank {
    RANK_PATH, /* ascending; the others descend */
    RANK_RELATIVE,
    RANK_MAX,
    RANK_MEAN,
    RANK_DIFFERING,
    RANKS,
} inspect_rank;

/* "relative" ...; NULL for RANK_PATH. */
extern const char *const inspect_ranking_names[RANKS];

/* The rows in their order: first those that do not differ by a finite number (shape, only in one,
 * NaN); equal rows by path. Has [d->n] elements and is freed with free(); NULL if out of memory. */
const inspect_diff_row **inspect_ranking_rows(const inspect_differences *d, inspect_rank by);

/* The tensors of a module, or of a part of it if they lie at another depth. */
typedef struct inspect_ranked_module {
    const char *path; /* of a tensor in the module; borrowed */
    size_t length;    /* how much of the path names the module */
    size_t tensors, unlike;
    size_t unmeasured;      /* tensors that differ in shape, or are in only one checkpoint */
    uint64_t elems;         /* of the measured tensors */
    inspect_diff_sums sums; /* of the measured tensors */
} inspect_ranked_module;

/* Ranks modules that are `depth` levels deep and, unless `all`, contain a tensor that differs. Free
 * *out with free(). Returns 0, or -1 if out of memory. */
int inspect_ranking_modules(const inspect_differences *d, unsigned depth, inspect_rank by, int all,
                            inspect_ranked_module **out, size_t *n);
