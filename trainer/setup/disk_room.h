/* Checks that checkpoints have room, from the size of a step, the number of steps that a store will
 * hold at once, and the free space of its file system as this machine sees it. Also opens the run's
 * list of stores. */
#pragma once

#include <dcp/error.h>

#include "fsdp/shard_layout.h"
#include "step/trainer.h"

/* The reason, as reported to dcp-run, why a run failed that could not save its last step. */
#define SETUP_NO_ROOM "there is no room for another step"

typedef struct config config;

/* Rank 0 only. Warns about each store whose steps will not all have room, and says what follows
 * from that. hosts: the number of hosts that the ranks are on; in a private store each holds a part
 * of a step. DCP_ERR_NO_SPACE: dcp-run restarts a run that has failed for lack of room, and there
 * still is no room; the run would compute all steps once more, and lose them. */
int setup_room_check(const config *c, const fsdp_layout *layout, int hosts, dcp_error *err);

/* Prints the same for all stores as a table on stdout, and the stores that a run could not use now,
 * because they cannot be written or because another writer has them. */
void setup_room_print(const config *c, const fsdp_layout *layout, int hosts);

/* Collective. Takes the stores' locks, waiting for those that an earlier start may still hold
 * (dcp-run --grace), and reports which losses private stores survive. Returns DCP_OK or an error of
 * dcp_tiers_open, the same on all ranks. */
int setup_open_stores(trainer *t, dcp_error *err);
