/* OUT, the target of an export. The export is written into a temporary folder beside OUT, which is
 * made durable and then renamed. */
#pragma once

#include <dcp/checkpoint.h>
#include <stdbool.h>

/* Functions return exit statuses, and report failures themselves. */

/* Checks that `out` is free or, with `replace`, is an earlier export. */
int export_target_check(const char *out, bool hdf5, bool replace);
/* Makes the checks that depend on the checkpoint: `out` must lie outside of the checkpoint, and
 * contain only files that an export may have written. */
int export_target_check_with(const dcp_checkpoint *ckpt, const char *out);

/* Recovers from an export that was killed while it replaced `out`. If the name `out` is free, the
 * folder that the export had moved away gets this name back, and a message says so. If the name is
 * in use, the folder that the export had moved away is removed. */
void export_target_recover(const char *out);
/* Makes an empty, locked folder `<out>.tmp-XXXXXX`, and writes its name to tmp[PATH_MAX]. */
int export_target_make_tmp(const char *out, char *tmp);
/* Removes `path` and everything below it. Prints nothing, even if `path` does not exist. */
void export_target_remove(const char *path);
/* Puts the folder `tmp`, or its file `file`, in place of `out`. `out` may be missing or, if the
 * export is a folder, an empty folder. With `replace`, `out` may be anything, and is removed.
 * Returns PROGRAM_USAGE if another program created `out` first. A signal that arrives before the
 * rename cancels it. On return everything is durable. */
int export_target_publish(const char *tmp, const char *file, const char *out, bool replace);
