/* Whether checkpoints find room, and opening the run's list of stores. */
#pragma once

#include <dcp/error.h>

#include "fsdp/shard_layout.h"
#include "step/trainer.h"

/* Whether checkpoints find room: the size of a step, how many of them a store will hold at once,
 * and what its file system has free. Of the machine that asks. */

/* Why a run has failed that could not save its last step, for dcp-run. */
#define SETUP_NO_ROOM "there is no room for another step"

typedef struct config config;

/* Rank 0: a warning for each store whose steps will not all find room, which says what follows from
 * that. hosts: how many the ranks are on; those of a private store have a part of a step each.
 * DCP_ERR_NO_SPACE where dcp-run starts a run again that has failed for that, and there still is no
 * room: it would compute all steps once more, and lose them. */
int setup_room_check(const config *c, const fsdp_layout *layout, int hosts, dcp_error *err);

/* The same for all stores as a table on stdout, and which of them a run could not use now, as they
 * cannot be written, or as another writer has them. */
void setup_room_print(const config *c, const fsdp_layout *layout, int hosts);

/* Opening the run's list of stores. */

/* Collective: takes the stores' locks, waits for those that an earlier start may still hold
 * (dcp-run --grace), and tells what private stores survive. DCP_OK or an error of dcp_tiers_open,
 * the same on all ranks. */
int setup_open_stores(trainer *t, dcp_error *err);
