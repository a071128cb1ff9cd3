/* Who holds which part of the parameters, and copies between whole units and their shards. */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include <dcp/tensor.h>

#include "fsdp/strategy.h"
#include "kernels/kernels.h"
#include "models/param.h"
#include "programs/fail.h"

/* Who holds what. Parameters are grouped in units; each is cut on dimension 0 by dcp_box_chunk, and
 * a rank's slices of a unit stand side by side: its shard. All sizes are in elements of fp32.
 *
 * Parameters that stay gathered are stored in place: the storage is then the gathered model, all
 * units whole one after the other, and a rank's slices are their parts of it. Gradients and the
 * optimizer's slots are shards in any case.
 *
 * Ranks form groups of `shards` consecutive ones; each group holds the state once. "Rank order" is
 * that of the ranks of a group.
 *
 * Slices and whole parameters start on multiples of FSDP_ALIGN elements; the gaps between hold
 * nothing that matters. On one rank a unit's shard is laid out as the whole unit is.
 *
 * In a unit, whole or sharded, frozen parameters come last. What only trained parameters have,
 * gradients and slots, is laid out as the part before them. */

typedef struct model model;

typedef struct kernels kernels;
typedef struct model model;

enum { FSDP_ALIGN = 128 }; /* 512 bytes: what disks want of memory that is written in place */

typedef struct fsdp_param {
    model_param info;
    dcp_box box;        /* what this rank holds of it */
    uint64_t row_elems; /* of one index of dimension 0 */
    uint64_t elems;     /* held by this rank */
    uint64_t whole_at;  /* in the whole unit, and in the unit's whole gradient */
    uint64_t param_at;  /* this rank's slice in its storage of parameters, all units */
    uint64_t ranked_at; /* and in its shard of the unit, where slices stand side by side */
    uint64_t grad_at;   /* in this rank's gradients and slots; 0 where it is frozen */
} fsdp_param;

typedef struct fsdp_unit {
    fsdp_param *params; /* its part of the layout's */
    size_t n;
    uint64_t whole_elems;
    uint64_t param_at; /* where it begins in this rank's storage of parameters */
    int *counts;       /* [world] elements of each rank's shard */
    int *starts;       /* [world] where it begins when all stand in rank order; gathered_elems */
    uint64_t gathered_elems;
    uint64_t whole_grad_elems; /* the same, of gradients; all 0 where the whole unit is frozen */
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
    int shard, shards;       /* this rank holds this one of that many: its place in its group */
    int in_place;            /* parameters are stored where they are gathered */
    uint64_t param_elems;    /* of this rank's storage of parameters */
    uint64_t grad_elems;     /* of this rank's gradients, and of each of its slots */
    uint64_t total_params;   /* of the model, without gaps */
    uint64_t trained_params; /* those that are not frozen */
    /* Of a layout of a model: */
    size_t *unit_of;  /* [model units] where a unit of the model is */
    size_t *first_of; /* [model units] its first parameter there */
} fsdp_layout;

/* n_params[u] parameters in unit u; `params` holds those of all units in order and is copied.
 * replicas: how many groups the `world` ranks form; divides it. in_place: whether parameters are
 * stored where they are gathered. */
int fsdp_layout_create(const model_param *params, const size_t *n_params, size_t n_units, int rank,
                       int world, int replicas, int in_place, fsdp_layout **out, dcp_error *err);
/* The layout of a model on rank `rank` of `world`, which need not exist: nothing is communicated.
 * Unit 0 is the root. Each block is a unit; with strategy->min_params, consecutive blocks are
 * joined until they have so many parameters, and the root takes those that are left. Tied weights
 * are one parameter. frozen: list of globs of names. DCP_ERR_ARG: one of them matches no parameter,
 * or together they match all. */
int fsdp_layout_of_model(const model *m, const json_t *frozen, const fsdp_strategy *strategy,
                         int rank, int world, fsdp_layout **out, dcp_error *err);
void fsdp_layout_destroy(fsdp_layout *layout);

/* Consecutive elements of a unit's gradient in rank order. */
typedef struct fsdp_range {
    int start, count;
} fsdp_range;

/* What a rank adds up of a unit's gradient. Ranks that hold the same shard divide it among them. */
fsdp_range fsdp_grad_range(const fsdp_layout *layout, size_t unit, int rank);

/* The rows of its slice of a parameter that this rank saves: ranks that hold the same slice share
 * the work. *first: the first of these elements in the slice. */
dcp_box fsdp_saved_box(const fsdp_layout *layout, const fsdp_param *param, uint64_t *first);

/* The parameter as a tensor of that path. */
dcp_tensor fsdp_param_tensor(const fsdp_param *param, const char *path);

/* Globs of parameter names, as fnmatch(3) without flags reads them: `*` is any text. Whether one of
 * the list's matches. */
int fsdp_globs_match(const json_t *globs, const char *name);

/* DCP_ERR_ARG names the key and a glob that matches no parameter, which is probably a mistake. */
int fsdp_globs_check(const fsdp_layout *layout, const char *key, const json_t *globs,
                     dcp_error *err);

/* Memory of the kernels, zeroed. */

/* *out stays as it is where elems is 0. DCP_ERR_NO_MEMORY. */
static inline int fsdp_alloc(kernels *k, float **out, uint64_t elems, dcp_error *err) {
    if (elems == 0) return DCP_OK;
    *out = k->alloc(k, elems * sizeof(float));
    if (!*out) return core_fail_memory(err, elems * sizeof(float));
    k->zero(k, *out, elems);
    return DCP_OK;
}

/* Copies between a whole unit and its shards in rank order: of all slices at once, by tables that
 * are made for the backend when the run begins. */

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
