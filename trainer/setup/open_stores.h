/* Opening the run's list of stores. */
#pragma once

#include "step/trainer.h"

/* Collective: takes the stores' locks, waits for those that an earlier start may still hold
 * (dcp-run --grace), and tells what private stores survive. DCP_OK or an error of dcp_tiers_open,
 * the same on all ranks. */
int setup_open_stores(trainer *t, dcp_error *err);
