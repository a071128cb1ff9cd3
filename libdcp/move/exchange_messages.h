/* Fragments exchanged by messages, for ranks that share no memory. */
#pragma once

#include "move/fragments.h"

/* Collective. Moves the fragments of all windows. What fails on this rank alone is in x->status. */
int move_exchange_by_messages(move_exchange *x, dcp_error *err);
