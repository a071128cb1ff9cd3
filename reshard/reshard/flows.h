/* The plan of a reshard: how many bytes go from each old rank's file to each new rank's. */
#ifndef RESHARD_FLOWS_H
#define RESHARD_FLOWS_H

#include <jansson.h>

#include <dcp/checkpoint.h>

#include "common/rank_mesh.h"
#include "programs/program.h"

typedef struct flow {
    int from, to; /* old rank, new rank; a global file is old rank 0 */
    uint64_t bytes;
} flow;

/* Of a rank number, which may be an old one, a new one or both. */
typedef struct flow_rank {
    uint64_t read;    /* of the old rank's file; all of its tensors' bytes */
    uint64_t written; /* to the new rank's file */
    uint64_t moved;   /* of what is written: what another old rank's file had */
} flow_rank;

typedef struct flows {
    flow *list; /* ascending by from, then to; none of 0 bytes */
    size_t n;
    int old, new; /* ranks */
    flow_rank *ranks;
    flow_rank total;
} flows;

/* 0, or PROGRAM_FAILED: memory is short, as was said. */
int flows_make(const dcp_checkpoint *ckpt, const rank_mesh *m, flows *out);
void flows_free(flows *f);

/* What the printed plan says beside the flows. */
typedef struct flows_labels {
    const char *src, *dst; /* the old and the new step's folder */
    uint64_t step;
    dcp_layout old_layout, new_layout;
    const char *mesh; /* as the caller gave it; NULL: --world alone */
    int processes;    /* that would do the work */
} flows_labels;

/* A row a rank, on stdout. */
void flows_print(const flows *f, const flows_labels *labels);
/* The same as JSON, with all flows; NULL: memory is short. */
json_t *flows_json(const flows *f, const flows_labels *labels);
/* The same as a drawing: bands from old to new ranks where they are few, else a matrix whose cells
 * stand for some ranks each. 0 or errno's code. */
int flows_draw(const flows *f, const char *path);

/* "state.h5" or "shard-00002-of-00008.h5" into name[64]. */
void flows_file(dcp_layout layout, int rank, int world, char *name);

#endif
