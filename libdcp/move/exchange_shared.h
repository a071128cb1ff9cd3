/* Fragments exchanged through memory that all ranks of a move share: ranks of one host. */
#pragma once

#include "move/fragments.h"

/* Collective, where comm->shared is not NULL. Moves the fragments of all windows. What fails on
 * this rank alone is in x->status. */
int move_exchange_by_shared_memory(move_exchange *x, dcp_error *err);
