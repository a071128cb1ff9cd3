/* Checks that there is room for checkpoints: compares the size of the steps that a store will hold
 * at once with the free space of its file system, as this machine sees it. Also opens the run's
 * list of stores. */
#pragma once

#include <dcp/error.h>

#include "fsdp/shard_layout.h"
#include "step/trainer.h"

/* What a run reports to dcp-run as the reason for its failure if it could not save its last
 * step. */
#define SETUP_NO_ROOM "there is no room for another step"

typedef struct config config;

/* Rank 0 only. Warns about each store without room for all of its steps, and says what that means
 * for the run. hosts: the number of hosts that the ranks run on; in a private store each host holds
 * a part of a step. DCP_ERR_NO_SPACE: dcp-run has restarted a run that failed for lack of room, and
 * there still is no room. The run would only compute the same steps again, and lose them again. */
int setup_space_check(const config *c, const fsdp_layout *layout, int hosts, dcp_error *err);

/* Prints a table of all stores on stdout: their steps, their room, and what that means for a run.
 * Then lists the stores that a run could not use now, because they are not writable or another
 * writer has them. */
void setup_space_print(const config *c, const fsdp_layout *layout, int hosts);

/* Collective. Takes the stores' locks, waits for locks that an earlier start may still hold
 * (dcp-run --grace), and reports which losses private stores survive. Returns DCP_OK or an error of
 * dcp_tiers_open, the same on all ranks. */
int setup_open_stores(trainer *t, dcp_error *err);
