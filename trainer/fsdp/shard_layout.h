/* Which rank holds which part of the parameters, and copies between whole units and their
 * shards. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <dcp/tensor.h>

#include "fsdp/strategy.h"
#include "kernels/kernels.h"
#include "models/param.h"
#include "programs/fail.h"

/* Parameters are grouped in units. Each parameter is cut along dimension 0 by dcp_box_chunk. A
 * rank's slices of a unit are adjacent, and together are its shard. All sizes are in elements of
 * fp32.
 *
 * Parameters that stay gathered are stored in place: the storage then consists of the whole units,
 * one after the other, and contains the rank's slices. Gradients and the optimizer's slots are
 * always shards.
 *
 * Ranks form groups of `shards` consecutive ranks; each group holds the state once. "Rank order" is
 * the order of a group's ranks.
 *
 * Slices and whole parameters start on multiples of FSDP_ALIGN elements; the content of the gaps is
 * irrelevant. On one rank a unit's shard has the layout of the whole unit.
 *
 * In a unit, whole or sharded, frozen parameters come last. Only trained parameters have gradients
 * and slots, which are laid out like the trained part of the unit. */

typedef struct kernels kernels;
typedef struct model model;

/* 512 bytes, the alignment of memory that disks require for direct writes. */
enum { FSDP_ALIGN = 128 };

typedef struct fsdp_param {
    model_param info;
    dcp_box box;        /* the part that this rank holds */
    uint64_t row_elems; /* elements per index of dimension 0 */
    uint64_t elems;     /* the elements that this rank holds */
    uint64_t whole_at;  /* position in the whole unit, and in the unit's whole gradient */
    uint64_t param_at;  /* position of this rank's slice in its storage, which holds the parameters
                           of all units */
    uint64_t ranked_at; /* position of this rank's slice in its shard of the unit */
    uint64_t grad_at;   /* position in this rank's gradients and slots; 0 if it is frozen */
} fsdp_param;

typedef struct fsdp_unit {
    fsdp_param *params; /* the unit's part of fsdp_layout.params */
    size_t n;
    uint64_t whole_elems;
    uint64_t param_at; /* where it begins in this rank's storage of parameters */
    int *counts;       /* [world] elements of each rank's shard */
    int *starts;       /* [world] where each rank's shard begins in rank order; the last one ends at
                          gathered_elems */
    uint64_t gathered_elems;
    uint64_t whole_grad_elems; /* this and the following: as above, for gradients; 0 if the whole
                                  unit is frozen */
    uint64_t grad_at;
    int *grad_counts, *grad_starts;
    uint64_t gathered_grad_elems;
} fsdp_unit;

typedef struct fsdp_layout {
    fsdp_unit *units;
    size_t n;
    fsdp_param *params; /* of all units, in order */
    size_t n_params;
    int rank, world;
    int shard, shards; /* the shard that this rank holds, which is also its rank within its group;
                          the number of shards */
    int in_place;      /* parameters are stored where they are gathered */
    uint64_t param_elems;    /* elements of this rank's storage of parameters */
    uint64_t grad_elems;     /* elements of this rank's gradients, and of each of its slots */
    uint64_t total_params;   /* parameters of the model, without gaps */
    uint64_t trained_params; /* the parameters that are not frozen */
    /* The layout of a model also has: */
    size_t *unit_of;  /* [model units] the unit that contains a unit of the model */
    size_t *first_of; /* [model units] the index, within the containing unit, of the model unit's
                         first parameter */
} fsdp_layout;

/* Unit u has n_params[u] parameters; `params` lists the parameters of all units in order, and is
 * copied. replicas: the number of groups that the `world` ranks form; divides `world`. in_place:
 * whether parameters are stored where they are gathered. */
int fsdp_layout_create(const model_param *params, const size_t *n_params, size_t n_units, int rank,
                       int world, int replicas, int in_place, fsdp_layout **out, dcp_error *err);
/* Makes the layout of a model for rank `rank` of `world`. Nothing is communicated, so the ranks
 * need not exist. Unit 0 is the root. Each block is a unit; with strategy->min_params, consecutive
 * blocks are joined until they have that many parameters, and the root gets the rest. Tied weights
 * are one parameter. frozen: a list of globs of names. DCP_ERR_ARG: one of the globs matches no
 * parameter, or together they match all parameters. */
int fsdp_layout_of_model(const model *m, const json_t *frozen, const fsdp_strategy *strategy,
                         int rank, int world, fsdp_layout **out, dcp_error *err);
void fsdp_layout_destroy(fsdp_layout *layout);

/* Consecutive elements of a unit's gradient in rank order. */
typedef struct fsdp_range {
    int start, count;
} fsdp_range;

/* The part of a unit's gradient that a rank adds up. Ranks that hold the same shard divide the
 * shard's gradient among themselves. */
fsdp_range fsdp_grad_range(const fsdp_layout *layout, size_t unit, int rank);

/* The rows that this rank saves from its slice of a parameter: ranks that hold the same slice share
 * the work. *first: the index of the rows' first element within the slice. */
dcp_box fsdp_saved_box(const fsdp_layout *layout, const fsdp_param *param, uint64_t *first);

/* The parameter as a tensor with the path `path`. */
dcp_tensor fsdp_param_tensor(const fsdp_param *param, const char *path);

/* Returns true if one of the globs matches the parameter's name. Globs work as in fnmatch(3)
 * without flags: `*` matches any text. */
bool fsdp_globs_match(const json_t *globs, const char *name);

/* Checks that each glob matches a parameter, because a glob without a match is probably a mistake.
 * DCP_ERR_ARG: the message names the key and the glob. */
int fsdp_globs_check(const fsdp_layout *layout, const char *key, const json_t *globs,
                     dcp_error *err);

/* Allocates zeroed memory with the kernels' allocator. *out is unchanged if elems is 0. Returns
 * DCP_OK or DCP_ERR_NO_MEMORY. */
static inline int fsdp_alloc(kernels *k, float **out, uint64_t elems, dcp_error *err) {
    if (elems == 0) return DCP_OK;
    *out = k->alloc(k, elems * sizeof(float));
    if (!*out) return core_fail_memory(err, elems * sizeof(float));
    k->zero(k, *out, elems);
    return DCP_OK;
}

/* Copies all slices between a whole unit and its shards in rank order. A copy is one call of the
 * backend, with a table that is made at the beginning of the run. */

typedef enum fsdp_direction {
    FSDP_JOIN,  /* assembles a whole unit from all ranks' shards; skips slices that this rank stores
                   in place */
    FSDP_SPLIT, /* splits a unit's whole gradient, which has no frozen parameters, into shards */
} fsdp_direction;

typedef struct fsdp_slices fsdp_slices;

/* Borrows layout and k. */
int fsdp_slices_create(const fsdp_layout *layout, kernels *k, fsdp_direction direction,
                       fsdp_slices **out, dcp_error *err);
void fsdp_slices_destroy(fsdp_slices *p); /* NULL is ignored */

/* `to` and `from` are in the memory of k. */
void fsdp_slices_copy(const fsdp_slices *p, size_t unit, float *to, const float *from);
