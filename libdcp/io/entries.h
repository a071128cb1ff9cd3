/* Looking up what is on disk. There are three possible results:
 *   it exists               DCP_OK
 *   it does not exist       DCP_ERR_NOT_FOUND: only for ENOENT and ENOTDIR
 *   the lookup failed       DCP_ERR_IO, DCP_ERR_NO_MEMORY ..., with errno and path: that proves
 *                           nothing, and must never be treated as the second result
 * Damage is reported by the code that reads the bytes (core_fail_is_damage, core/fail.h). */
#pragma once

#include <dirent.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "dcp/error.h"

/* Looks up the name in the open folder, or by its path if `folder` is AT_FDCWD. Does not follow a
 * symbolic link. `st` may be NULL. */
int io_stat(int folder, const char *path, struct stat *st, dcp_error *err);

/* Determines whether the folder's entry e is itself a folder. If it no longer exists, *is becomes
 * 0. */
int io_entry_is_folder(DIR *of, const char *path, const struct dirent *e, bool *is, dcp_error *err);

/* Calls fn for each entry of the folder, except "." and "..", until fn fails. Returns fn's status.
 * On DCP_OK all entries were seen. `of` is for io_entry_is_folder. The folder is the entry `name`
 * of the open folder `at`, which may be AT_FDCWD; if `at` is a descriptor, `name` must not be a
 * symbolic link. `path` is for messages. */
typedef int (*io_entry_fn)(void *ctx, DIR *of, const struct dirent *e, dcp_error *err);
int io_visit_entries(int at, const char *name, const char *path, io_entry_fn fn, void *ctx,
                     dcp_error *err);
