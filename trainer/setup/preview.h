/* --plan: predicts what a run on the given number of ranks would hold and send, whether all ranks
 * would fit into this machine's memory, and whether a rank would fit into a GPU of one of the usual
 * sizes, which this machine need not have. No run is started. */
#pragma once

#include <dcp/error.h>

#include "fsdp/fsdp_plan.h"
#include "models/model.h"

typedef struct config config;

/* Prints the units, memory and traffic of rank 0, the rank that holds the most. Reads no data,
 * except for the length of a stored batch. */
int setup_preview_print(const config *c, int ranks, dcp_error *err);
