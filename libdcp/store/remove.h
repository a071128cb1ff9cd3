/* Making room for a save by removing old steps. */
#pragma once

#include "store/store.h"

/* Collective. Removes one step: the oldest step that was set aside or is about to be; if there is
 * none, the oldest other step. Never removes the newest step, the newest one known to be intact, a
 * pinned step, or one that a reader holds. *from is the place in this order at which the search
 * continues; it is 0 for the first call. Sets *made to 0 if no step is left that may be removed. */
int store_free_space(dcp_store *store, uint64_t *from, int *made, dcp_error *err);

/* Adds a list of the steps that readers hold to the message of *err. Collective; called after a
 * save failed with *err because the disk is full. */
void store_explain_no_space(dcp_store *store, dcp_error *err);
