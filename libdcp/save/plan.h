/* The plan of a save: agreed tensors, who keeps which boxes, and for layout global the file's
 * layout. Kept in the store: a save at every step plans once. */
#ifndef DCP_SAVE_PLAN_H
#define DCP_SAVE_PLAN_H

#include "plan/plan.h"
#include "save/image.h"
#include "store/store.h"

struct save_layout {
    uint64_t key; /* checksum of this rank's tensors and boxes */
    dcp_layout layout;
    int shards;
    dcp_engine engine; /* of this save; never DCP_ENGINE_AUTO */
    uint64_t meta_bytes;
    uint64_t tensors; /* fingerprint of all tensors, the same on all ranks */
    plan_boxes boxes; /* box pointers are those of the state planned last: see save_plan */
    save_file file;   /* layout global */
};

typedef struct save_request {
    uint64_t step;
    state_tensor **sorted;
    size_t n;
    dcp_layout layout;
    dcp_engine engine;
    int shards;              /* files of layout sharded */
    char *meta;              /* rank 0: canonical JSON */
    char *about;             /* further members of about.json; NULL: none */
    const save_mover *mover; /* NULL: the boxes are memory or plain sources */
    save_progress progress;  /* as the caller's options ask for; each run of the save has its own */
} save_request;

/* Collective. Checks that all ranks ask for the same, plans where anything changed since the last
 * save, and returns the store's plan with boxes that point into this state. */
int save_plan(dcp_store *store, const save_request *request, struct save_layout **out,
              dcp_error *err);

/* Length of /dcp/meta: whole multiples of 64 KiB, with room for a shard's own member. */
uint64_t save_meta_bytes(const char *meta, dcp_layout layout);

#endif
