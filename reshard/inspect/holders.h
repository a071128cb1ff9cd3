/* How many bytes of each group of tensors each rank holds. */
#pragma once

#include <stddef.h>

#include <dcp/inspect.h>

#include "common/rank_mesh.h"

enum { HOLDERS_GROUPS = 48 }; /* the most that a drawing can show */

typedef struct inspect_holders_group {
    char name[64];     /* "model.layers.0", "exp_avg" */
    const char *first; /* the path of the group's first tensor */
    size_t kind;       /* equal for the groups of one kind */
    uint64_t bytes;    /* of the group's tensors, each counted once */
    uint64_t *held;    /* [world] the bytes that each rank holds */
} inspect_holders_group;

typedef struct inspect_holders {
    const dcp_checkpoint *ckpt;
    const rank_mesh *mesh; /* NULL: the ranks that wrote the step, one for each file */
    int world;
    inspect_holders_group groups[HOLDERS_GROUPS];
    size_t n;
    uint64_t *bytes, *tensors; /* [world] each rank's bytes in all groups; the number of tensors of
                                * which it has a part */
} inspect_holders;

/* Counts the bytes. Returns an exit status. */
int inspect_holders_make(const dcp_checkpoint *ckpt, const rank_mesh *cut, inspect_holders *out);
void inspect_holders_free(inspect_holders *h);

/* Called for each non-empty box of tensor i, in the order of ranks. A result other than 0 stops the
 * walk and is returned. */
typedef int (*inspect_holders_fn)(void *ctx, int rank, const dcp_box *box);
int inspect_holders_each(const inspect_holders *h, size_t i, inspect_holders_fn fn, void *ctx);

/* Returns the last of the successive ranks, starting at `rank`, that hold equally many bytes of
 * every group. */
int inspect_holders_last_equal(const inspect_holders *h, int rank);

/* Draws the groups as SVG. Returns an exit status. */
int inspect_holders_draw(const inspect_holders *h, const char *title, const char *path);
