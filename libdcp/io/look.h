/* Looking at what is on disk. Every answer is one of three:
 *   it is there               DCP_OK
 *   it is not there           DCP_ERR_NOT_FOUND: ENOENT or ENOTDIR, and nothing else
 *   it could not be looked at DCP_ERR_IO, DCP_ERR_NO_MEMORY ..., with errno and path: that proves
 *                             nothing, and nobody may act as if it were the second one
 * That it is damaged is for whoever reads its bytes to say (core_fail_proves, core/fail.h). */
#pragma once

#include <dirent.h>
#include <sys/stat.h>

#include "dcp/error.h"

/* What is of that name in the open folder, or by its path where `folder` is AT_FDCWD; a symbolic
 * link is not followed. `st` may be NULL. */
int io_look(int folder, const char *path, struct stat *st, dcp_error *err);

/* Whether the folder's entry e is a folder, too. Where it has gone since, it is none. */
int io_look_is_folder(DIR *of, const char *path, const struct dirent *e, int *is, dcp_error *err);

/* Calls fn with each entry of the folder, bar "." and "..", until it fails, and returns how. All of
 * them have been seen where that is DCP_OK. `of` is for io_look_is_folder. The folder is the entry
 * `name` of the open folder `at`, which may be AT_FDCWD, and which is not followed where it is a
 * symbolic link and `at` is none; `path` is for messages. */
typedef int (*io_look_fn)(void *ctx, DIR *of, const struct dirent *e, dcp_error *err);
int io_look_through(int at, const char *name, const char *path, io_look_fn fn, void *ctx,
                    dcp_error *err);
