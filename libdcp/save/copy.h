/* The copy of what a save in flight reads: made while dcp_save_async's caller waits, so that the
 * caller's memory may change at once. The save then reads the copy's boxes in place of the state's.
 * The memory is kept from save to save, as fresh pages cost more than copying into old ones. */
#pragma once

#include "comm/stop.h"
#include "save/plan.h"
#include "save/request.h"

struct save_replicas;
struct staging;

typedef struct save_copy save_copy;

/* Not collective, when the save is planned, on the thread that asks for it, which asks `stop` now
 * and then: copies the boxes that this rank writes, or its parts of those whose writing it shares,
 * and takes the checksums of those that are only compared; the plan's boxes are the copy's then.
 * `device`: of the boxes that are on one.
 * `*copy` (NULL: none yet) is the memory. Returns 0, with the plan as it was, where that would take
 * more than r->copy_bytes, or fails, or is stopped: the save has to read the state's boxes. It may
 * spend r->progress.staging_bytes for the rest of them then, and *copy has no memory. */
int save_copy_make(const dcp_store *store, save_request *r, save_plan *plan, struct staging *device,
                   comm_stop *stop, save_copy **copy);

/* Not collective, in the save: whether what came from a device is what was there. */
int save_copy_prove(const save_copy *copy, const struct staging *device, dcp_error *err);
/* Adds the checksums that were taken as the copy was made. */
void save_copy_give_sums(const save_copy *copy, struct save_replicas *to);

/* NULL is ignored. */
void save_copy_free(save_copy *copy);
