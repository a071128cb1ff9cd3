/* Whether checkpoints find room: the size of a step, how many of them a store will hold at once,
 * and what its file system has free. Of the machine that asks. */
#pragma once

#include "fsdp/shard_layout.h"

typedef struct config config;

/* A warning for each store whose steps will not all find room, which says what follows from that.
 * hosts: how many the ranks are on; those of a private store have a part of a step each. */
void setup_room_warn(const config *c, const fsdp_layout *layout, int hosts);

/* The same for all stores as a table on stdout, and which of them a run could not use now, as they
 * cannot be written, or as another writer has them. */
void setup_room_print(const config *c, const fsdp_layout *layout, int hosts);
