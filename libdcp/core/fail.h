/* Filling a dcp_error. Every function returns the status that it stored, so a failing line reads
 * `return core_fail(err, DCP_ERR_ARG, "...")`. */
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dcp/error.h"

int core_fail(dcp_error *err, int status, const char *fmt, ...) DCP_PRINTF(3, 4);

/* Like core_fail, but copies the members other than the message from `of`, which is usually `err`
 * itself, or an error whose message becomes part of the new one. As in core_fail, the rank becomes
 * -1. */
int core_fail_again(dcp_error *err, int status, const dcp_error *of, const char *fmt, ...)
    DCP_PRINTF(4, 5);

/* Appends to the message of an error that was filled with `status`, and returns `status`. Leaves
 * all other members unchanged, including the rank. Does nothing if `err` is NULL. */
int core_fail_add(int status, dcp_error *err, const char *fmt, ...) DCP_PRINTF(3, 4);

/* Like core_fail, but puts "<path>: " before the message, and stores the path as a member. */
int core_fail_at(dcp_error *err, int status, const char *path, const char *fmt, ...)
    DCP_PRINTF(4, 5);

/* Each of these functions sets a member of an error that was filled with `status`, and returns
 * `status`, so calls can be nested. They leave the error unchanged if the status is DCP_OK or `err`
 * is NULL. */
int core_fail_path(int status, const char *path, dcp_error *err);
int core_fail_offset(int status, uint64_t offset, dcp_error *err);
int core_fail_tensor(int status, const char *tensor, dcp_error *err);

/* Adds a rank that the error concerns. */
int core_fail_rank(int status, int rank, dcp_error *err);

/* Formats one line of less than `size` bytes; a longer one loses its middle. `out` may be among the
 * arguments. */
void core_format(char *out, size_t size, const char *fmt, va_list args) DCP_PRINTF(3, 0);

/* Fails according to errno: "<what> <path>: <errno's text>". ENOSPC and EDQUOT become
 * DCP_ERR_NO_SPACE, ENOENT DCP_ERR_NOT_FOUND, ENOTDIR and ENAMETOOLONG DCP_ERR_ARG, ENOMEM
 * DCP_ERR_NO_MEMORY, all others DCP_ERR_IO. errno and path become members. */
int core_fail_errno(dcp_error *err, const char *what, const char *path);

int core_fail_memory(dcp_error *err, uint64_t bytes);

/* Returns true if a failure to read a step proves that something is missing or damaged, so that the
 * step is not complete. */
static inline bool core_fail_is_damage(int status) {
    return status == DCP_ERR_CORRUPT || status == DCP_ERR_NOT_FOUND;
}
/* Returns true if the failure means that the step could not be examined. That proves nothing about
 * the step, so another copy of it may be used instead, but not an older step. */
static inline bool core_fail_is_unread(int status) {
    return status == DCP_ERR_IO || status == DCP_ERR_NO_MEMORY;
}
