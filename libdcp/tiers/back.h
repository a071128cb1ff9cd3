/* A run that goes back to an earlier step. */
#pragma once

#include "tiers/tiers.h"

/* Collective: where the run has gone back, ends what is being filled, forgets all of later steps,
 * and sets them aside in all stores. Of a list of one store they are set aside when the next step
 * is published. No save is in flight. */
int tiers_go_back(dcp_tiers *tiers, dcp_error *err);
