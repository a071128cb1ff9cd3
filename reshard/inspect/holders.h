/* Who holds how much of what: bytes by rank and by group of tensors. */
#ifndef RESHARD_HOLDERS_H
#define RESHARD_HOLDERS_H

#include <stddef.h>

#include <dcp/inspect.h>

#include "common/rank_mesh.h"

enum { HOLDERS_GROUPS = 48 }; /* at most: as many as a drawing can show */

typedef struct holders_group {
    char name[64];     /* "model.layers.0", "exp_avg" */
    const char *first; /* path of its first tensor */
    size_t kind;       /* groups of one kind have one number */
    uint64_t bytes;    /* of its tensors, once */
    uint64_t *held;    /* [world] bytes */
} holders_group;

typedef struct holders {
    const dcp_checkpoint *ckpt;
    const rank_mesh *mesh; /* NULL: the ranks are the shards' files, as written */
    int world;
    holders_group groups[HOLDERS_GROUPS];
    size_t n;
    uint64_t *bytes, *tensors; /* [world] of all groups; tensors: of which a rank holds something */
} holders;

/* Returns an exit status. */
int holders_make(const dcp_checkpoint *ckpt, const rank_mesh *cut, holders *out);
void holders_free(holders *h);

/* Calls fn for each box of tensor i that is not empty, by rank. Not 0 stops and is returned. */
typedef int (*holders_fn)(void *ctx, int rank, const dcp_box *box);
int holders_each(const holders *h, size_t i, holders_fn fn, void *ctx);

/* The last rank of those from `rank` on that hold the same bytes of every group. */
int holders_run(const holders *h, int rank);

/* Draws it as SVG. Returns an exit status. */
int holders_draw(const holders *h, const char *title, const char *path);

#endif
