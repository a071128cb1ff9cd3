/* Numbers that nobody can guess. */
#pragma once

#include <stdint.h>

#include "dcp/error.h"

/* DCP_ERR_IO where the system has none. */
int core_entropy(uint64_t *out, dcp_error *err);
