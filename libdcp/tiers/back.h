/* A run that goes back to an earlier step. */
#pragma once

#include "tiers/tiers.h"

/* Collective: where the run has gone back, ends what is being filled, forgets all of later steps,
 * and sets them aside in all stores, whether the save that follows goes into any or not. No save is
 * in flight. */
int tiers_go_back(dcp_tiers *tiers, dcp_error *err);
