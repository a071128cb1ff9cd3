/* Fragments exchanged between the ranks and the aggregators, in both directions. Ranks that share
 * memory are a group; so is a rank that shares none. */
#pragma once

#include "move/carrier.h"

/* Collective. Moves the fragments of all windows. What fails on this rank alone is in x->status. */
int move_exchange_run(move_exchange *x, dcp_error *err);
