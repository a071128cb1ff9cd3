/* The plan of a save: its tensors, which rank writes which boxes, and where the boxes lie in the
 * files. */
#pragma once

#include <stdbool.h>

#include "dcp/layout.h"
#include "dcp/store.h"
#include "h5/skeleton.h"
#include "move/piece.h"
#include "plan/agreement.h"
#include "plan/boxes.h"
#include "store/store.h"

struct save_request;

/* Where everything lies in a file. */
typedef struct save_file {
    dcp_layout layout;
    format_row *rows; /* one per dataset; their paths are in `paths` or in the state */
    size_t n;
    char *paths;
    uint64_t blocks;
    h5_skeleton skeleton; /* has runs only on the rank that writes the metadata */
} save_file;

/* A file of layout sharded. */
typedef struct save_shard {
    int number;
    save_file file;
    dcp_box *boxes;  /* per row */
    size_t *tensors; /* per row: its tensor's index in the request's sorted tensors */
    size_t *sources; /* per row: the plan's box that has its bytes, or SAVE_NO_SOURCE */
} save_shard;

#define SAVE_NO_SOURCE SIZE_MAX /* the tensor has no elements */

/* The files that one rank writes. */
typedef struct save_shards {
    save_shard *list;
    size_t n;
} save_shards;

/* Replicas: boxes that several ranks hold. Either one of the holders, the keeper, writes the box,
 * or each holder writes some parts of the box. Each holder computes the checksums of the whole box
 * (for the parts that it writes, while it writes them), and the holders compare the checksums. */

struct save_request;
struct staging;

typedef struct save_replicas {
    const plan_boxes *boxes; /* the boxes of the plan; borrowed, like `sorted` */
    state_tensor *const *sorted;
    plan_sums sums;     /* checksums of this rank's boxes that have replicas */
    move_piece *pieces; /* of the boxes that other ranks write; move_sums reads them */
    format_row *rows;   /* the rows of these pieces */
    size_t n;
    move_device device;
    bool others_are_summed; /* the checksums already include the bytes that others write */
} save_replicas;

/* Prepares the comparison of a plan's replicas. Not collective. If `share` is true, the holders of
 * a box share its writing; otherwise the keepers write. `staging` is for boxes on a device. *out
 * must be freed whether or not the call succeeds. */
int save_replicas_make(state_tensor *const *sorted, const plan_boxes *boxes, bool share,
                       struct staging *staging, save_replicas **out, dcp_error *err);
/* NULL is ignored. */
void save_replicas_free(save_replicas *replicas);

/* Returns the checksums of the blocks of box k, to which the caller adds. Returns NULL if the box
 * has no replicas, or if `replicas` is NULL. */
uint64_t *save_replicas_own(const save_replicas *replicas, size_t k);

/* Returns a word that is made from this rank's checksums, which must be complete. The XOR of all
 * ranks' words is 0 if the replicas are equal, and almost never 0 if they differ. Returns 0 if
 * `replicas` is NULL. */
uint64_t save_replicas_word(const save_replicas *replicas);

/* Collective: fails if the replicas differ. `word` is the XOR of all ranks' words; if it is 0,
 * nothing is communicated. With DCP_REPLICAS_WARN, a difference is only logged. */
int save_replicas_compare(const dcp_store *store, const struct save_request *r,
                          const save_replicas *replicas, uint64_t word, dcp_error *err);

/* The plan is kept from one save to the next: saves of the same tensors and boxes are planned only
 * once. */

struct move_engine;
struct move_window_cache;
struct save_replicas;
typedef struct save_request save_request;

typedef struct save_plan {
    uint64_t key; /* checksum of this rank's tensors and boxes */
    dcp_layout layout;
    int shards;
    const struct move_engine *engine; /* the engine of this save */
    uint64_t meta_bytes;
    uint64_t json_bytes; /* the length of this save's JSON text on rank 0 */
    uint64_t intact;     /* the step that all ranks know to be intact; UINT64_MAX: none */
    uint64_t tensors;    /* fingerprint of all tensors; equal on all ranks */
    plan_boxes boxes;    /* this rank's boxes; they point into the state that was saved last
                            (save_plan_make) */
    save_file file;      /* used for layout global: the file */
    /* Two elements, indexed by save_request_shares: 0 if one holder of a box writes it, 1 if its
     * holders share the writing. */
    struct move_window_cache *moves;
    save_shards shards_written;     /* layout sharded: the shards that this rank writes */
    struct save_replicas *replicas; /* the replicas of this save; NULL: none are compared */
    double begin, end;              /* times of the last planning, in seconds of CLOCK_MONOTONIC */
} save_plan;

/* Adds the values of this rank's request to r->agreed.vote, after the values of the call
 * (save_call_agree). Not collective. `is_made` is false if this rank has failed to make its
 * request; if it is true, sets r->key. `last` is the plan that is kept, or NULL. */
void save_plan_vote(const dcp_store *store, save_request *r, const save_plan *last, bool is_made);

/* Returns true if the plan is for the request's tensors and boxes on this rank. In that case, makes
 * the plan's boxes point into the request's state. Sets r->key. Not collective. */
bool save_plan_matches(save_plan *plan, save_request *r);

/* Collective, after the vote. Checks that all ranks request the same save. *out is the plan of the
 * last save (NULL: none). If anything has changed since that save, *out is replaced by a new plan.
 * The boxes of *out then point into this request's state. HDF5 lays the files out here; only
 * engines that need the caller's thread call HDF5 later in a save. */
int save_plan_make(dcp_store *store, const save_request *request, save_plan **out, dcp_error *err);
void save_plan_free(save_plan *plan);
