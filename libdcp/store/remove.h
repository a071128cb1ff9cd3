/* Making room for a save: old steps that are given up for it. */
#pragma once

#include "store/store.h"

/* Collective. Removes one step, the first that can be removed: of those that were set aside, or are
 * about to be, the oldest, then the oldest of the others. The newest step stays, as do the newest
 * one known to be intact, those that are pinned, and those that a reader holds. Steps before *from
 * are passed over; it is moved on behind the one that is removed, and begins with 0. *made = 0:
 * none is left that may go. */
int store_room_make(dcp_store *store, uint64_t *from, int *made, dcp_error *err);

/* Collective, after a save that failed with *err for want of room: adds to the message which steps
 * readers hold. */
void store_room_explain(dcp_store *store, dcp_error *err);
