/* --plan: what a run on the given number of ranks will hold and send, without starting one. */
#pragma once

#include <dcp/error.h>

#include "fsdp/fsdp_plan.h"
#include "models/model.h"

/* What --plan plans: a rank that need not exist. */

typedef struct config config;

/* --plan's answer to whether ranks fit in GPUs, of the usual sizes, whatever this machine has. */

typedef struct config config;

/* --plan: what a run on so many ranks will hold and send, without starting one. */

typedef struct config config;

/* Prints units, memory and traffic of rank 0, which holds the most. Reads no data but the length of
 * a stored batch. */
int setup_preview_print(const config *c, int ranks, dcp_error *err);
