/* Which steps stay in a store, and how the others go. */
#pragma once

#include "store/store.h"

/* Sets the steps after store->continue_from aside, and logs it. */
int store_abandon(dcp_store *store, dcp_error *err);

/* Collective: sets the steps after store->continue_from aside now, not at the next publication. */
int store_set_aside(dcp_store *store, dcp_error *err);

/* Moves the entry out of the way so that it is no step any more, durably, then removes it. */
int store_discard(dcp_store *store, const char *name, dcp_error *err);

/* Collective: leaders remove the steps that options.keep does not keep, and log where that fails.
 */
int store_retain(dcp_store *store, dcp_error *err);

/* While a step is pinned, `keep` leaves it. Only while no save of the store is in flight. */
void store_pin(dcp_store *store, uint64_t step);
void store_unpin(dcp_store *store, uint64_t step);
