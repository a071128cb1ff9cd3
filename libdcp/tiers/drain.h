/* Filling one store from another's files, in a thread beside the next saves. */
#pragma once

#include "core/task.h"
#include "save/request.h"
#include "tiers/tier_list.h"

/* A store that is being filled from a faster one's step. */
typedef struct tiers_drain {
    dcp_comm *comm;  /* of the store that is filled */
    dcp_store *to;   /* only this filling uses it meanwhile, except for its pins */
    dcp_store *from; /* its step is pinned */
    char *path;      /* the step's folder on this rank */
    char *about;     /* options.about_json */
    uint64_t step;
    dcp_save_options options;
    dcp_checkpoint *ckpt;    /* open while it is read */
    struct drain_data *data; /* the boxes of it that this rank passes on */
    save_request request;    /* is planned already */
    int planned;             /* the status of the planning */
    double begin, end;
    core_task task; /* cancelled: the step is no longer needed */
} tiers_drain;

/* Collective: starts filling `to` from the step that `from` got last. If there can be no thread, it
 * is filled when this returns. Failures are noted and logged. */
void tiers_drain_start(const dcp_tiers *tiers, tier *to, tier *from);
/* Cancels a filling with an abandoned step, and does not wait. One rank is enough: it ends on all
 * ranks alike. */
void tiers_drain_stop(const dcp_tiers *tiers, tier *t);
/* Returns 1 if tiers_drain_finish would not wait on this rank. */
int tiers_drain_is_done(tier *t);
/* Waits for the end, and notes the outcome. Does nothing if the tier is not being filled. */
void tiers_drain_finish(const dcp_tiers *tiers, tier *t);
