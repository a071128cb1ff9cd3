/* Which boxes a shard keeps, in the order of its rows, and the names of their datasets. */
#ifndef DCP_SAVE_SHARD_BOXES_H
#define DCP_SAVE_SHARD_BOXES_H

#include "save/layout.h"
#include "save/request.h"

typedef struct save_shard_box {
    size_t tensor; /* in the request's sorted ones */
    dcp_box box;
    const state_box *source; /* NULL: nothing to write */
    char *path;              /* the dataset's, in `paths` */
} save_shard_box;

/* Shard `number` gets at most so many rows. The bytes of their paths are added to *path_bytes. */
size_t save_shard_boxes_measure(const save_request *r, const save_layout *plan, int number,
                                size_t *path_bytes);

/* The boxes that the shard keeps, ascending by path: *n_out of them in out[], their paths in
 * `paths`, both with the room that save_shard_boxes_measure found. Tensors without elements, which
 * nobody holds, are in shard 0. DCP_ERR_UNSUPPORTED: a name that is in the way of a piece's. */
int save_shard_boxes_collect(const save_request *r, const save_layout *plan, int number,
                             save_shard_box *out, size_t *n_out, char *paths, dcp_error *err);

#endif
