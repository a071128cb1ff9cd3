/* Paths that callers give. */
#pragma once

#include "dcp/error.h"

/* DCP_ERR_UNSUPPORTED for scheme://, which no folder is meant by; DCP_OK for all else, NULL too.
 * The message begins with "<what>: ", or with the path where that is NULL. */
int core_path_check(const char *what, const char *path, dcp_error *err);
