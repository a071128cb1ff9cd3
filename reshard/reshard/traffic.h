/* The plan of a reshard: how many bytes go from each old rank's file to each new rank's. */
#pragma once

#include <jansson.h>

#include <dcp/checkpoint.h>

#include "common/rank_mesh.h"

typedef struct reshard_flow {
    int from, to; /* old rank, new rank; a global file is old rank 0 */
    uint64_t bytes;
} reshard_flow;

/* Bytes of one rank number, which may be an old rank, a new rank or both. */
typedef struct reshard_flow_rank {
    uint64_t read;    /* of the old rank's file; all of its tensors' bytes */
    uint64_t written; /* to the new rank's file */
    uint64_t moved;   /* of what is written: what another old rank's file had */
} reshard_flow_rank;

typedef struct reshard_traffic {
    reshard_flow *list; /* ascending by from, then to; none of 0 bytes */
    size_t n;
    int old, new; /* ranks */
    reshard_flow_rank *ranks;
    reshard_flow_rank total;
} reshard_traffic;

/* 0, or PROGRAM_FAILED after a message: memory is short. */
int reshard_traffic_count(const dcp_checkpoint *ckpt, const rank_mesh *m, reshard_traffic *out);
void reshard_traffic_free(reshard_traffic *f);

/* What the printed plan says beside the flows. */
typedef struct reshard_traffic_labels {
    const char *src, *dst; /* the old and the new step's folder */
    uint64_t step;
    dcp_layout old_layout, new_layout;
    const char *mesh; /* as the caller gave it; NULL: --world alone */
    int processes;    /* that would do the work */
} reshard_traffic_labels;

/* A row a rank, on stdout. */
void reshard_traffic_print(const reshard_traffic *f, const reshard_traffic_labels *labels);
/* The same as JSON, with all flows; NULL: memory is short. */
json_t *reshard_traffic_json(const reshard_traffic *f, const reshard_traffic_labels *labels);
/* The same as a drawing: bands from old to new ranks where they are few, else a matrix whose cells
 * stand for some ranks each. The title has the mesh, if it is not NULL. 0 or errno's code. */
int reshard_traffic_draw(const reshard_traffic *f, const char *mesh, const char *path);
