/* The plan of a save: which tensors, who keeps which boxes, and for layout global where everything
 * lies in the file. It is kept from save to save: saves of the same tensors and boxes are planned
 * once. */
#pragma once

#include "dcp/save.h"
#include "h5/skeleton.h"
#include "plan/boxes.h"

struct move_engine;
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

typedef struct save_plan {
    uint64_t key; /* checksum of this rank's tensors and boxes */
    dcp_layout layout;
    int shards;
    const struct move_engine *engine; /* of this save */
    uint64_t meta_bytes;
    uint64_t tensors; /* fingerprint of all tensors, the same on all ranks */
    plan_boxes boxes; /* box pointers are those of the state planned last: see save_plan_make */
    save_file file;   /* layout global */
} save_plan;

/* Collective. Checks that all ranks ask for the same, and plans where anything changed since the
 * last save, whose plan is *out (NULL: none). *out is the new one then; its boxes point
 * into this request's state. */
int save_plan_make(dcp_store *store, const struct save_request *request, save_plan **out,
                   dcp_error *err);
void save_plan_free(save_plan *plan);
