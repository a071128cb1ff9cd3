/* --plan: predicts what a run on the given number of ranks would hold and send, and whether a rank
 * would fit into a GPU of one of the usual sizes. This machine's own memory plays no role. No run
 * is started. */
#pragma once

#include <dcp/error.h>

#include "fsdp/fsdp_plan.h"
#include "models/model.h"

typedef struct config config;

/* Prints the units, memory and traffic of rank 0, the rank that holds the most. Reads no data,
 * except for the length of a stored batch. */
int setup_preview_print(const config *c, int ranks, dcp_error *err);
