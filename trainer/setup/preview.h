/* --plan: what a run on so many ranks will hold and send, without starting one. */
#pragma once

#include <dcp/error.h>

typedef struct config config;

/* Prints units, memory and traffic of rank 0, which holds the most. Reads no data but the length of
 * a stored batch. */
int setup_preview_print(const config *c, int ranks, dcp_error *err);
