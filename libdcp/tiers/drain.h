/* Filling one store from the files of another one, in a thread, while further saves are made. */
#pragma once

#include <stdbool.h>

#include "core/task.h"
#include "save/request.h"
#include "tiers/tier_list.h"

/* A store that is being filled from a step of a faster store. */
typedef struct tiers_drain {
    dcp_comm *comm;  /* the communicator of the store that is filled */
    dcp_store *to;   /* used only by this filling, except for the store's pins */
    dcp_store *from; /* the step is pinned in it */
    char *path;      /* the step's folder on this rank */
    char *about;     /* options.about_json */
    uint64_t step;
    dcp_save_options options;
    dcp_checkpoint *ckpt;    /* the step to copy, open while it is read */
    struct drain_data *data; /* the boxes that this rank copies */
    save_request request;    /* for the save into `to`; the save is planned already */
    int planned;             /* the status of the planning */
    double begin, end;
    core_task task; /* cancelled if the step is no longer needed */
} tiers_drain;

/* Collective: starts to fill `to` from a step of `from`. If there can be no thread, `to` is
 * filled before this returns. But if only the thread that uses the list can fill `to`, and the
 * caller is another one (!is_own_thread), tiers_drain_finish fills it. Failures are recorded and
 * logged. */
void tiers_drain_start(const dcp_tiers *tiers, tier *to, tier *from, uint64_t step,
                       bool is_own_thread);
/* Cancels the filling if its step is abandoned, without waiting. A call on one rank is enough to
 * end it on all ranks. */
void tiers_drain_stop(const dcp_tiers *tiers, tier *t);
/* Returns true if no thread of this rank is filling the tier. */
bool tiers_drain_is_done(const tier *t);
/* Waits until the filling has ended, and records the outcome. Does nothing if the tier is not being
 * filled. */
void tiers_drain_finish(const dcp_tiers *tiers, tier *t);
