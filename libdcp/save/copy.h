/* The copy of what a save in flight reads: made while dcp_save_async's caller waits, so that the
 * caller's memory may change at once. The save then reads the copy's boxes in place of the state's.
 * The memory is kept from save to save, as fresh pages cost more than copying into old ones. */
#pragma once

#include "comm/comm.h"
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

/* The same by the plan of the last save, before the ranks have agreed on another one: all boxes of
 * this rank are copied, whole, so that the copy serves by whatever plan. Not where that takes much
 * more memory than what this rank writes, nor for boxes that are no dense or strided memory. */
int save_copy_make_ahead(const dcp_store *store, save_request *r, const dcp_state *state,
                         save_plan *plan, comm_stop *stop, save_copy **copy);
/* Once more for the same state, which has not changed since. Returns 0 where the memory is not laid
 * out for that, or has more than `limit` bytes; nothing is lost then. */
int save_copy_repeat(const dcp_store *store, const dcp_state *state, uint64_t limit,
                     comm_stop *stop, save_copy *copy);
/* The plan's boxes, which are of the same tensors and boxes, become that copy's. */
void save_copy_use(save_copy *copy, save_plan *plan);

/* Not collective, in the save: whether what came from a device is what was there. */
int save_copy_prove(const save_copy *copy, const struct staging *device, dcp_error *err);
/* Adds the checksums that were taken as the copy was made. */
void save_copy_give_sums(const save_copy *copy, struct save_replicas *to);

/* NULL is ignored. */
void save_copy_free(save_copy *copy);
