/* Filling a dcp_error. Every function returns the status that it stored, so that a failing line
 * reads `return core_fail(err, DCP_ERR_ARG, "...")`. */
#pragma once

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "dcp/error.h"

int core_fail(dcp_error *err, int status, const char *fmt, ...) DCP_PRINTF(3, 4);

/* One line of less than `size` bytes; a longer one loses its middle. `out` may be an argument. */
void core_format(char *out, size_t size, const char *fmt, va_list args) DCP_PRINTF(3, 0);

/* From errno: "<what> <path>: <errno's text>"; ENOSPC and EDQUOT become DCP_ERR_NO_SPACE, ENOENT
 * DCP_ERR_NOT_FOUND, ENOMEM DCP_ERR_NO_MEMORY, the rest DCP_ERR_IO. */
int core_fail_errno(dcp_error *err, const char *what, const char *path);

int core_fail_memory(dcp_error *err, uint64_t bytes);
