/* A copy of the boxes that a save in flight reads. It is made before dcp_save_async returns, so the
 * caller's memory may change immediately afterwards. The save then reads the copy's boxes instead
 * of the state's boxes. The memory is kept for later saves, since obtaining fresh pages takes
 * longer than copying into old ones. */
#pragma once

#include <stdbool.h>

#include "comm/comm.h"
#include "save/plan.h"
#include "save/request.h"

struct save_replicas;
struct staging;

typedef struct save_copy save_copy;

/* Copies the boxes that this rank writes; if the holders of a box share its writing, copies only
 * this rank's parts of the box. Computes the checksums of the bytes that this rank compares but
 * does not write. Then replaces the plan's boxes with the copy's boxes. Not collective. Called on
 * the caller's thread after the save is planned; checks `stop` now and then. `device` is for boxes
 * on a device. *copy is the memory of earlier copies, NULL if there is none. Returns true on
 * success, and false with an unchanged plan if the copy would need more than r->copy_bytes, fails
 * or is stopped. After a failure, *copy has no memory, and the save has to read the state's boxes;
 * at a fence it may then copy up to r->progress.staging_bytes of the bytes that it has not read
 * yet. */
bool save_copy_make(const dcp_store *store, save_request *r, save_plan *plan,
                    struct staging *device, comm_stop *stop, save_copy **copy);

/* Makes a copy ahead, using the plan of the last save, before the ranks have agreed on the next
 * save. Copies all boxes of this rank completely, so the copy serves any plan. Returns false if
 * this rank would copy much more than it writes, because many boxes are replicated, or if a box is
 * not in host memory. */
bool save_copy_make_ahead(const dcp_store *store, save_request *r, const dcp_state *state,
                          save_plan *plan, comm_stop *stop, save_copy **copy);
/* Copies the state again, if `copy` was made ahead from it. No box may have been added to the state
 * since then. Returns false if `copy` was not made from this state, or uses more than `limit`
 * bytes; `copy` remains usable. Also returns false if `stop` has ended the copying. */
bool save_copy_repeat(const dcp_store *store, const dcp_state *state, uint64_t limit,
                      comm_stop *stop, save_copy *copy);
/* Replaces the plan's boxes with the copy's boxes. The copy must have the same tensors and boxes as
 * the plan. */
void save_copy_use(save_copy *copy, save_plan *plan);

/* Fails if the copied bytes differ from the bytes on the device. Not collective; called during the
 * save. */
int save_copy_prove(const save_copy *copy, const struct staging *device, dcp_error *err);
/* Adds to `to` the checksums that were computed while the copy was made. */
void save_copy_add_sums(const save_copy *copy, struct save_replicas *to);

/* NULL is ignored. */
void save_copy_free(save_copy *copy);
