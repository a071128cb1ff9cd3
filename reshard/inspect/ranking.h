/* Tensors of a comparison by how much they differ, alone or counted by module. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <dcp/tensor.h>

#include "inspect/differences.h"

/* Tensors counted by module, as the dots and slashes in their names give them. */

#define MODULES_DEPTH 16 /* at most */

typedef struct inspect_module {
    const char *path; /* of a tensor in it; borrowed */
    size_t length;    /* of the module's own in that */
    size_t own;       /* where the last part of its name begins */
    unsigned depth;   /* 1: below the section */
    uint64_t tensors, elems, bytes;
} inspect_module;

typedef struct inspect_modules {
    inspect_module *list; /* each before those in it, in the tensors' order */
    size_t n;
    size_t open[MODULES_DEPTH]; /* those that the last tensor is in */
    unsigned depth, most;       /* how many; the depth that was asked for */
} inspect_modules;

/* Adds a tensor, "/section/a.b.weight", to the modules a and a.b; tensors come ascending by path. A
 * tensor without a module is one itself. 0, or -1: out of memory. */
int inspect_modules_add(inspect_modules *m, const dcp_tensor *tensor);
void inspect_modules_free(inspect_modules *m);

/* The kind of a tensor: its section, or for the optimizer's what comes after that: "exp_avg". */
const char *inspect_modules_kind(const char *path, size_t *length);

/* The tensors of a comparison, or modules of them, by how much they differ. */

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

/* The rows by rank: first those that differ by more than numbers (shape, only in one, NaN), in the
 * order of paths where they are alike. [d->n], freed with free(); NULL: out of memory. */
const inspect_diff_row **inspect_ranking_rows(const inspect_differences *d, inspect_rank by);

/* The tensors of a module, or of a part of it where they lie at another depth. */
typedef struct inspect_ranked_module {
    const char *path; /* of a tensor in it; borrowed */
    size_t length;    /* of the module's own in that */
    size_t tensors, unlike;
    size_t unmeasured;      /* of those that are unlike: in shape, or in one of both alone */
    uint64_t elems;         /* of those that were measured */
    inspect_diff_sums sums; /* likewise */
} inspect_ranked_module;

/* Modules `depth` levels deep, of which a tensor differs unless `all`, by rank. *out is freed with
 * free(). 0, or -1: out of memory. */
int inspect_ranking_modules(const inspect_differences *d, unsigned depth, inspect_rank by, int all,
                            inspect_ranked_module **out, size_t *n);
