/* Which step a list of stores loads: the newest that is whole, or an earlier one. */
#pragma once

#include "tiers/tiers.h"

/* A run that goes back to an earlier step. */

/* Collective: where the run has gone back, ends what is being filled, forgets all of later steps,
 * and sets them aside in all stores, whether the save that follows goes into any or not. No save is
 * in flight. */
int tiers_go_back(dcp_tiers *tiers, dcp_error *err);
