/* Filling a dcp_error: every function returns the status that it stored, so that a failing line
 * reads `return trainer_fail(err, DCP_ERR_ARG, "...")`. */
#ifndef TRAINER_FAIL_H
#define TRAINER_FAIL_H

#include <stdint.h>

#include "dcp/error.h"

int trainer_fail(dcp_error *err, int status, const char *fmt, ...) DCP_PRINTF(3, 4);

int trainer_fail_memory(dcp_error *err, uint64_t bytes);

#endif
