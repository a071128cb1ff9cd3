/* Copies between a whole unit and its shards in rank order: of all slices at once, by tables that
 * are made for the backend when the run begins. */
#pragma once

#include "fsdp/shard_layout.h"
#include "kernels/kernels.h"

typedef enum fsdp_direction {
    FSDP_JOIN,  /* a whole unit from all ranks' shards. What this rank stores in place is left */
    FSDP_SPLIT, /* the shards of a unit's gradient, of what is trained, from the whole */
} fsdp_direction;

typedef struct fsdp_slices fsdp_slices;

/* Borrows layout and k. */
int fsdp_slices_create(const fsdp_layout *layout, kernels *k, fsdp_direction direction,
                       fsdp_slices **out, dcp_error *err);
void fsdp_slices_destroy(fsdp_slices *p); /* NULL is ignored */

/* Both in the memory of k. */
void fsdp_slices_copy(const fsdp_slices *p, size_t unit, float *to, const float *from);
