/* Where everything lies in the files of a save: the part of its plan that HDF5 makes. */
#pragma once

#include "dcp/layout.h"
#include "h5/skeleton.h"
#include "plan/boxes.h"

struct save_request;

/* Where everything lies in a file. */
typedef struct save_file {
    dcp_layout layout;
    step_row *rows; /* a dataset each; their paths are `paths` or the state's */
    size_t n;
    char *paths;
    uint64_t blocks;
    h5_skeleton skeleton; /* runs only on the rank that writes metadata */
} save_file;

void save_file_free(save_file *file);

/* A file of layout sharded. */
typedef struct save_shard {
    int number;
    save_file file;
    dcp_box *boxes;  /* a row's */
    size_t *tensors; /* a row's, in the request's sorted ones */
    size_t *sources; /* a row: which of the plan's boxes it is written from; SAVE_NO_SOURCE */
} save_shard;

#define SAVE_NO_SOURCE SIZE_MAX /* of a tensor without elements */

/* Those that one rank writes. */
typedef struct save_shards {
    save_shard *list;
    size_t n;
} save_shards;

/* Not collective: lays out the shards that rank `rank` of `size` writes of `boxes`, which are its
 * own. DCP_ERR_ARG: a box is of a shard that another rank writes. DCP_ERR_UNSUPPORTED: a name that
 * is in the way of a piece's. To be freed in either case. */
int save_shards_lay_out(const struct save_request *r, const plan_boxes *boxes, int rank, int size,
                        uint64_t meta_bytes, const h5_asked *asked, save_shards *out,
                        dcp_error *err);
void save_shards_free(save_shards *shards);
