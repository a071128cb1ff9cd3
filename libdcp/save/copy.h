/* The copy of what a save in flight reads. It is made before dcp_save_async returns, so the
 * caller's memory may change at once. The save then reads the copy's boxes instead of the state's.
 * The memory is kept from save to save, since fresh pages cost more than copying into old ones. */
#pragma once

#include "comm/comm.h"
#include "save/plan.h"
#include "save/request.h"

struct save_replicas;
struct staging;

typedef struct save_copy save_copy;

/* Not collective, after the save is planned, on the caller's thread, which looks at `stop` now and
 * then. Copies the boxes that this rank writes, or its parts of those whose writing it shares, and
 * takes the checksums of those that are only compared; then the plan's boxes are the copy's.
 * `device` is for boxes on a device. `*copy` (NULL: none yet) is the memory. Returns 0, with the
 * plan as it was, if the copy would need more than r->copy_bytes, or fails, or is stopped: the save
 * has to read the state's boxes. Then it may use r->progress.staging_bytes for the rest of them,
 * and *copy has no memory. */
int save_copy_make(const dcp_store *store, save_request *r, save_plan *plan, struct staging *device,
                   comm_stop *stop, save_copy **copy);

/* Does the same by the plan of the last save, before the ranks have agreed on another one: copies
 * all boxes of this rank whole, so the copy serves any plan. Returns 0 if that needs much more
 * memory than what this rank writes, or if boxes are neither dense nor strided memory. */
int save_copy_make_ahead(const dcp_store *store, save_request *r, const dcp_state *state,
                         save_plan *plan, comm_stop *stop, save_copy **copy);
/* Copies the same state again, which has the same tensors and boxes as before. Returns 0 if the
 * memory is not laid out for that, or has more than `limit` bytes; it can still be used then. */
int save_copy_repeat(const dcp_store *store, const dcp_state *state, uint64_t limit,
                     comm_stop *stop, save_copy *copy);
/* Makes the plan's boxes, which are of the same tensors and boxes, those of the copy. */
void save_copy_use(save_copy *copy, save_plan *plan);

/* Not collective, in the save: fails if what came from a device is not what was there. */
int save_copy_prove(const save_copy *copy, const struct staging *device, dcp_error *err);
/* Adds the checksums that were taken while the copy was made. */
void save_copy_give_sums(const save_copy *copy, struct save_replicas *to);

/* NULL is ignored. */
void save_copy_free(save_copy *copy);
