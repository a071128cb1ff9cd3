/* Replicas: boxes that several ranks hold. One of them, the keeper, writes the box, or all of them
 * take turns at its parts. Each takes checksums of all of it, of what it writes on the way, and the
 * checksums are compared. */
#pragma once

#include "move/box_bytes.h"
#include "plan/replicas.h"
#include "store/store.h"

struct save_request;
struct staging;

typedef struct save_replicas {
    const plan_boxes *boxes; /* the plan's; borrowed, as the tensors */
    state_tensor *const *sorted;
    plan_sums sums;     /* of this rank's boxes that have replicas */
    move_piece *pieces; /* of those that another rank writes all of, for move_sums */
    step_row *rows;     /* theirs */
    size_t n;
    move_device device;
    int others_are_summed; /* what this rank does not write: it is not to be read any more */
} save_replicas;

/* Not collective: what the comparison of a plan's replicas takes, where their holders share the
 * writing or leave it to the keepers; `staging` is of boxes on a device. To be freed in either
 * case. */
int save_replicas_make(state_tensor *const *sorted, const plan_boxes *boxes, int share,
                       struct staging *staging, save_replicas **out, dcp_error *err);
/* NULL is ignored. */
void save_replicas_free(save_replicas *replicas);

/* The checksums of the blocks of box k, to be added to; NULL: none are wanted, as where `replicas`
 * is NULL. */
uint64_t *save_replicas_own(const save_replicas *replicas, size_t k);

/* When all of this rank's sums are taken: a word that is 0, XORed with that of all other ranks,
 * where the replicas are equal, and hardly ever where they differ. NULL: 0. */
uint64_t save_replicas_word(const save_replicas *replicas);

/* Collective: whether the replicas are equal, where that is wanted; `word` is that of all ranks. It
 * costs nothing where they are. Where the request asks for a warning, a difference is logged. */
int save_replicas_compare(const dcp_store *store, const struct save_request *r,
                          const save_replicas *replicas, uint64_t word, dcp_error *err);
