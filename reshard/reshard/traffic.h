/* The plan of a reshard: how many bytes pass from each old rank's file to each new rank's file. */
#pragma once

#include <jansson.h>

#include <dcp/checkpoint.h>

#include "common/rank_mesh.h"

typedef struct reshard_flow {
    int from, to; /* old rank, new rank; an old global file counts as rank 0 */
    uint64_t bytes;
} reshard_flow;

/* The bytes of one rank number, which may be the number of an old rank, of a new rank, or of
 * both. */
typedef struct reshard_flow_rank {
    uint64_t read;    /* all tensor data in the old rank's file */
    uint64_t written; /* tensor data written to the new rank's file */
    uint64_t moved;   /* the part of `written` that comes from files of old ranks with other
                       * numbers */
} reshard_flow_rank;

typedef struct reshard_traffic {
    reshard_flow *list; /* ascending by `from`, then `to`; without flows of 0 bytes */
    size_t n;
    int old, new; /* how many old and how many new ranks there are */
    reshard_flow_rank *ranks;
    reshard_flow_rank total;
} reshard_traffic;

/* Counts the bytes. Returns 0, or PROGRAM_FAILED after a message if out of memory. */
int reshard_traffic_count(const dcp_checkpoint *ckpt, const rank_mesh *m, reshard_traffic *out);
void reshard_traffic_free(reshard_traffic *f);

/* What is printed with the plan, in addition to the flows. */
typedef struct reshard_traffic_labels {
    const char *src, *dst; /* the old and the new step's folder */
    uint64_t step;
    dcp_layout old_layout, new_layout;
    const char *mesh; /* as given by the user; NULL: only --world was given */
    int processes;    /* the number of processes that would do the work */
} reshard_traffic_labels;

/* Prints the plan on stdout, one row per rank. */
void reshard_traffic_print(const reshard_traffic *f, const reshard_traffic_labels *labels);
/* Returns the plan as JSON, with all flows; NULL if out of memory. */
json_t *reshard_traffic_json(const reshard_traffic *f, const reshard_traffic_labels *labels);
/* Draws the plan as an SVG file: as bands from old to new ranks if there are few ranks, otherwise
 * as a matrix in which a row or a column may represent several ranks. The title names the mesh if
 * it is not NULL. Returns 0 or an errno code. */
int reshard_traffic_draw(const reshard_traffic *f, const char *mesh, const char *path);
