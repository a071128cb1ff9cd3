/* Who holds what. Parameters are grouped in units; each is cut on dimension 0 by dcp_box_chunk, and
 * a rank's slices of a unit stand side by side: its shard. All sizes are in elements of fp32.
 *
 * Slices and whole parameters start on multiples of FSDP_ALIGN elements; the gaps between hold
 * nothing that matters. On one rank a unit's shard is laid out as the whole unit is. */
#ifndef TRAINER_FSDP_LAYOUT_H
#define TRAINER_FSDP_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include "../models/model.h"
#include "dcp/tensor.h"

enum { FSDP_ALIGN = 128 }; /* 512 bytes: what disks want of memory that is written in place */

typedef struct fsdp_param {
    model_param info;
    dcp_box box;        /* what this rank holds of it */
    uint64_t row_elems; /* of one index of dimension 0 */
    uint64_t elems;     /* held by this rank */
    uint64_t whole_at;  /* in the whole unit */
    uint64_t shard_at;  /* in this rank's storage, all units */
} fsdp_param;

typedef struct fsdp_unit {
    fsdp_param *params;
    size_t n;
    uint64_t whole_elems;
    uint64_t shard_at; /* in this rank's storage */
    int *counts;       /* [world] elements of each rank's shard */
    int *starts;       /* [world] where it begins when all stand in rank order; gathered_elems */
    uint64_t gathered_elems;
} fsdp_unit;

typedef struct fsdp_layout {
    fsdp_unit *units;
    size_t n;
    int rank, world;
    uint64_t shard_elems;  /* of this rank, all units */
    uint64_t total_params; /* of the model, without gaps */
} fsdp_layout;

/* n_params[u] parameters in unit u; `params` holds those of all units in order and is copied. */
int fsdp_layout_create(const model_param *params, const size_t *n_params, size_t n_units, int rank,
                       int world, fsdp_layout **out, dcp_error *err);
void fsdp_layout_destroy(fsdp_layout *layout);

/* The parameter as a tensor of that path. */
dcp_tensor fsdp_param_tensor(const fsdp_param *param, const char *path);

/* Between a whole unit and the shards of all ranks in rank order. */
void fsdp_join(const fsdp_layout *layout, size_t unit, float *whole, const float *ranked);
void fsdp_split(const fsdp_layout *layout, size_t unit, const float *whole, float *ranked);

#endif
