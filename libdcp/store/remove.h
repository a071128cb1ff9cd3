/* Making room for a save by removing old steps. */
#pragma once

#include "store/store.h"

/* Collective. Removes one step: the oldest of those that were set aside, or are about to be,
 * otherwise the oldest of the others. Never removes the newest step, the newest one known to be
 * intact, pinned steps, and those that a reader holds. Skips steps before *from, which is initially
 * 0 and moves behind the removed step. *made = 0: no step is left that may be removed. */
int store_room_make(dcp_store *store, uint64_t *from, int *made, dcp_error *err);

/* Collective, after a save that failed with *err since the disk is full: adds to the message which
 * steps readers hold. */
void store_room_explain(dcp_store *store, dcp_error *err);
