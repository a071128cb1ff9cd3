/* Replicas: boxes that several ranks hold, of which one, the keeper, writes the box. All of them
 * take checksums of it, the keeper while it writes, and the checksums are compared. */
#pragma once

#include "move/box_bytes.h"
#include "plan/replicas.h"
#include "store/store.h"

struct save_request;
struct staging;

typedef struct save_replicas {
    plan_sums sums;     /* of this rank's boxes that have replicas */
    move_piece *pieces; /* of those that another rank writes, for move_sums */
    step_row *rows;     /* theirs */
    size_t n;
    move_device device;
} save_replicas;

/* Not collective: what the comparison of a plan's replicas takes; `staging` is of boxes on a
 * device. To be freed in either case. */
int save_replicas_make(state_tensor *const *sorted, const plan_boxes *boxes,
                       struct staging *staging, save_replicas **out, dcp_error *err);
/* NULL is ignored. */
void save_replicas_free(save_replicas *replicas);

/* The checksums of the blocks of box k, to be added to; NULL: none are wanted, as where `replicas`
 * is NULL. */
uint64_t *save_replicas_own(const save_replicas *replicas, size_t k);

/* Collective, when all sums are taken: whether the replicas are equal, where that is wanted. Where
 * the request asks for a warning, a difference is logged. */
int save_replicas_compare(const dcp_store *store, const struct save_request *r,
                          const plan_boxes *boxes, const save_replicas *replicas, dcp_error *err);
