/* The plan of a save: which tensors, who keeps which boxes, and for layout global where everything
 * lies in the file. It is kept from save to save: saves of the same tensors and boxes are planned
 * once. */
#pragma once

#include "dcp/store.h"
#include "save/file_plan.h"

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
    /* Of its saves, two: where one holder of a box writes it, and where all share that. */
    struct move_kept *moves;
    save_shards shards_written;     /* layout sharded: by this rank */
    struct save_replicas *replicas; /* of this save; NULL: none are compared */
    double begin, end;              /* of planning, the last time: seconds of CLOCK_MONOTONIC */
} save_plan;

/* Not collective: what this rank tells all others when the save begins, of which all get the least
 * (save_call_agree). `r->key` is set. `last`: the plan that is kept, or NULL. */
void save_plan_tell(const dcp_store *store, save_request *r, const save_plan *last, uint64_t *told);

/* Not collective: whether the plan is of the request's tensors and boxes on this rank, whose box
 * pointers it then has. Sets r->key. */
int save_plan_serves(save_plan *plan, save_request *r);

/* Collective, once r->told is all ranks'. Checks that all ranks ask for the same, and plans where
 * anything changed since the last save, whose plan is *out (NULL: none). *out is the new one then;
 * its boxes point into this request's state. HDF5 lays the files out here, and is not called later
 * in a save. */
int save_plan_make(dcp_store *store, const save_request *request, save_plan **out, dcp_error *err);
void save_plan_free(save_plan *plan);
