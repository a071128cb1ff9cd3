/* --plan: what a run on the given number of ranks will hold and send, and whether the ranks fit
 * into GPUs of the usual sizes, whatever this machine has. No run is started. */
#pragma once

#include <dcp/error.h>

#include "fsdp/fsdp_plan.h"
#include "models/model.h"

typedef struct config config;

typedef struct config config;

typedef struct config config;

/* Prints units, memory and traffic of rank 0, which holds the most. Reads no data except the length
 * of a stored batch. */
int setup_preview_print(const config *c, int ranks, dcp_error *err);
