/* The plan of a reshard: how many bytes pass from each old rank's file to each new rank's. */
#pragma once

#include <jansson.h>

#include <dcp/checkpoint.h>

#include "common/rank_mesh.h"

typedef struct reshard_flow {
    int from, to; /* old rank, new rank; a global file is old rank 0 */
    uint64_t bytes;
} reshard_flow;

/* The bytes of one rank number, which may be an old rank, a new rank or both. */
typedef struct reshard_flow_rank {
    uint64_t read;    /* in the old rank's file: the bytes of all of its tensors */
    uint64_t written; /* into the new rank's file */
    uint64_t moved;   /* the part of `written` that comes from another old rank's file */
} reshard_flow_rank;

typedef struct reshard_traffic {
    reshard_flow *list; /* ascending by `from`, then `to`; without flows of 0 bytes */
    size_t n;
    int old, new; /* numbers of ranks */
    reshard_flow_rank *ranks;
    reshard_flow_rank total;
} reshard_traffic;

/* Returns 0, or PROGRAM_FAILED after a message if out of memory. */
int reshard_traffic_count(const dcp_checkpoint *ckpt, const rank_mesh *m, reshard_traffic *out);
void reshard_traffic_free(reshard_traffic *f);

/* The information in the printed plan in addition to the flows. */
typedef struct reshard_traffic_labels {
    const char *src, *dst; /* the old and the new step's folder */
    uint64_t step;
    dcp_layout old_layout, new_layout;
    const char *mesh; /* as the caller gave it; NULL: --world only */
    int processes;    /* those that would do the work */
} reshard_traffic_labels;

/* Prints the plan on stdout, one row per rank. */
void reshard_traffic_print(const reshard_traffic *f, const reshard_traffic_labels *labels);
/* The plan as JSON, with all flows; NULL if out of memory. */
json_t *reshard_traffic_json(const reshard_traffic *f, const reshard_traffic_labels *labels);
/* Draws the plan: as bands from old to new ranks if they are few, otherwise as a matrix whose cells
 * stand for several ranks each. The title names the mesh if it is not NULL. Returns 0 or an errno
 * code. */
int reshard_traffic_draw(const reshard_traffic *f, const char *mesh, const char *path);
