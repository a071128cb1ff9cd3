/* What other writers left in a store's directory. */
#pragma once

#include "store/store.h"

/* Collective, by whoever has just taken the store. Takes away what earlier writers left, or still
 * try to use, so that it serves them no more; gives steps that had lost their names for a moment
 * their names back; and removes the rest, which is logged. DCP_ERR_BUSY: the store is lost again.
 */
int store_leftovers_clear(dcp_store *store, dcp_error *err);
