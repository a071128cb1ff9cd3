/* The plan of a save: which tensors, who writes which boxes, and where they lie in the files. */
#pragma once

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
    format_row *rows; /* one per dataset; their paths are in `paths` or the state's */
    size_t n;
    char *paths;
    uint64_t blocks;
    h5_skeleton skeleton; /* has runs only on the rank that writes metadata */
} save_file;

/* A file of layout sharded. */
typedef struct save_shard {
    int number;
    save_file file;
    dcp_box *boxes;  /* per row */
    size_t *tensors; /* per row: its number among the request's sorted tensors */
    size_t *sources; /* per row: the plan's box that it is written from, or SAVE_NO_SOURCE */
} save_shard;

#define SAVE_NO_SOURCE SIZE_MAX /* the tensor has no elements */

/* The files that one rank writes. */
typedef struct save_shards {
    save_shard *list;
    size_t n;
} save_shards;

/* Replicas: boxes that several ranks hold. One of them, the keeper, writes the box, or all of them
 * take turns at its parts. Each computes the checksums of the whole box, those of what it writes
 * while it writes, and the ranks compare them. */

struct save_request;
struct staging;

typedef struct save_replicas {
    const plan_boxes *boxes; /* the plan's; borrowed like the tensors */
    state_tensor *const *sorted;
    plan_sums sums;     /* of this rank's boxes that have replicas */
    move_piece *pieces; /* of the boxes that other ranks write, for move_sums */
    format_row *rows;   /* of these pieces */
    size_t n;
    move_device device;
    int others_are_summed; /* what this rank does not write has its checksums, and is not read again
                            */
} save_replicas;

/* Not collective: prepares the comparison of a plan's replicas. `share`: their holders share the
 * writing, otherwise the keepers write. `staging` is for boxes on a device. To be freed in either
 * case. */
int save_replicas_make(state_tensor *const *sorted, const plan_boxes *boxes, int share,
                       struct staging *staging, save_replicas **out, dcp_error *err);
/* NULL is ignored. */
void save_replicas_free(save_replicas *replicas);

/* Returns the checksums of the blocks of box k, for adding to them; NULL if none are needed, or if
 * `replicas` is NULL. */
uint64_t *save_replicas_own(const save_replicas *replicas, size_t k);

/* Once this rank has all its checksums, returns a word. The XOR of all ranks' words is 0 if the
 * replicas are equal, and hardly ever if they differ. NULL: returns 0. */
uint64_t save_replicas_word(const save_replicas *replicas);

/* Collective: fails if the replicas differ and the request compares them; `word` is the XOR of all
 * ranks' words. Costs nothing if they are equal. With DCP_REPLICAS_WARN, a difference is only
 * logged. */
int save_replicas_compare(const dcp_store *store, const struct save_request *r,
                          const save_replicas *replicas, uint64_t word, dcp_error *err);

/* The plan: which tensors, who keeps which boxes, and for layout global where everything lies in
 * the file. It is kept from save to save: saves of the same tensors and boxes are planned once. */

struct move_engine;
struct move_kept;
struct save_replicas;
typedef struct save_request save_request;

typedef struct save_plan {
    uint64_t key; /* checksum of this rank's tensors and boxes */
    dcp_layout layout;
    int shards;
    const struct move_engine *engine; /* of this save */
    uint64_t meta_bytes;
    uint64_t json_bytes; /* of this save */
    uint64_t intact;     /* the step that all ranks know to be intact; UINT64_MAX: none */
    uint64_t tensors;    /* fingerprint of all tensors, the same on all ranks */
    plan_boxes boxes;    /* box pointers are those of the state planned last: see save_plan_make */
    save_file file;      /* layout global */
    /* Two: for saves in which one holder of a box writes it, and for those in which all share it.
     */
    struct move_kept *moves;
    save_shards shards_written;     /* layout sharded: by this rank */
    struct save_replicas *replicas; /* of this save; NULL: none are compared */
    double begin, end;              /* of planning, the last time: seconds of CLOCK_MONOTONIC */
} save_plan;

/* Not collective: adds what the ranks find out about each other's requests to r->agreed.vote, after
 * the values of the call (save_call_agree). If the request is made, sets `r->key`; otherwise this
 * rank has failed. `last`: the plan that is kept, or NULL. */
void save_plan_vote(const dcp_store *store, save_request *r, const save_plan *last, bool is_made);

/* Not collective: returns true if the plan is for the request's tensors and boxes on this rank;
 * then it gets the request's box pointers. Sets r->key. */
int save_plan_serves(save_plan *plan, save_request *r);

/* Collective, after the vote. Checks that all ranks request the same, and makes a new plan if
 * anything changed since the last save, whose plan is *out (NULL: none). The boxes of *out then
 * point into this request's state. HDF5 lays the files out here, and is not called later in a save.
 */
int save_plan_make(dcp_store *store, const save_request *request, save_plan **out, dcp_error *err);
void save_plan_free(save_plan *plan);
