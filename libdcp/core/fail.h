/* Filling a dcp_error. Every function returns the status that it stored, so that a failing line
 * reads `return core_fail(err, DCP_ERR_ARG, "...")`. */
#pragma once

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "dcp/error.h"

int core_fail(dcp_error *err, int status, const char *fmt, ...) DCP_PRINTF(3, 4);

/* The same, keeping the members of `of` that are not text for people, which is mostly `err` itself
 * or an error whose message becomes part of this one's. The rank is -1 as after core_fail. */
int core_fail_again(dcp_error *err, int status, const dcp_error *of, const char *fmt, ...)
    DCP_PRINTF(4, 5);

/* Goes on with the message of an error that was filled with `status`, which it returns, and keeps
 * all members, the rank too. Nothing happens where `err` is NULL. */
int core_fail_add(int status, dcp_error *err, const char *fmt, ...) DCP_PRINTF(3, 4);

/* core_fail with "<path>: " before the message, and the path as a member. */
int core_fail_at(dcp_error *err, int status, const char *path, const char *fmt, ...)
    DCP_PRINTF(4, 5);

/* Members of an error that was filled with `status`, which they return, so that they can be put
 * around what fills it. Nothing happens where the status is DCP_OK or `err` is NULL. */
int core_fail_path(int status, const char *path, dcp_error *err);
int core_fail_offset(int status, uint64_t offset, dcp_error *err);
int core_fail_tensor(int status, const char *tensor, dcp_error *err);

/* One more rank that it is about. */
int core_fail_rank(int status, int rank, dcp_error *err);

/* One line of less than `size` bytes; a longer one loses its middle. `out` may be an argument. */
void core_format(char *out, size_t size, const char *fmt, va_list args) DCP_PRINTF(3, 0);

/* From errno: "<what> <path>: <errno's text>"; ENOSPC and EDQUOT become DCP_ERR_NO_SPACE, ENOENT
 * DCP_ERR_NOT_FOUND, ENOMEM DCP_ERR_NO_MEMORY, the rest DCP_ERR_IO. errno and path become members.
 */
int core_fail_errno(dcp_error *err, const char *what, const char *path);

int core_fail_memory(dcp_error *err, uint64_t bytes);

/* What a failure to read a step says of it. It is proven that something is missing or damaged: the
 * step is none any more. */
static inline int core_fail_proves(int status) {
    return status == DCP_ERR_CORRUPT || status == DCP_ERR_NOT_FOUND;
}
/* It could not be looked at, which proves nothing: another copy of the same step may do, an older
 * step may not. */
static inline int core_fail_is_unread(int status) {
    return status == DCP_ERR_IO || status == DCP_ERR_NO_MEMORY;
}
