/* --plan's answer to whether ranks fit in GPUs, of the usual sizes, whatever this machine has. */
#pragma once

#include "models/model.h"
#include <dcp/error.h>

typedef struct config config;

/* Prints what a rank of a GPU each takes of its memory, as configured and with the options that
 * take less, and which of them fit. m: of c. sequence: tokens of a sample. */
int setup_gpu_fit_print(const config *c, model *m, int ranks, uint64_t sequence, dcp_error *err);
