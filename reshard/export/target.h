/* OUT, the target of an export: whether it may be written, and the temporary folder beside it,
 * which becomes durable and is then renamed. */
#pragma once

#include <dcp/checkpoint.h>

/* Functions return exit statuses; they have reported failures. */

/* Checks that `out` is free, or with `replace` an earlier export. */
int export_target_check(const char *out, int hdf5, int replace);
/* The checks that depend on the checkpoint: `out` lies outside of it, and contains only what an
 * export of it may have written. */
int export_target_check_with(const dcp_checkpoint *ckpt, const char *out);

/* Recovers after an export that was killed while it replaced `out`: what it had moved away gets its
 * name back, with a note, or is removed if the name is in use. */
void export_target_recover(const char *out);
/* Makes an empty folder `<out>.tmp-XXXXXX`, and writes its name to tmp[PATH_MAX]. */
int export_target_make_tmp(const char *out, char *tmp);
/* Removes `path` and everything below it. Prints nothing, even if `path` does not exist. */
void export_target_remove(const char *path);
/* Puts the folder `tmp`, or a file of it, in place of `out`. `out` may be missing, an empty folder
 * (if the export is a folder) or, with `replace`, anything, which is removed. Returns PROGRAM_USAGE
 * if another program created `out` first; a signal that arrives before the rename cancels it.
 * Everything is durable at the return. */
int export_target_publish(const char *tmp, const char *file, const char *out, int replace);
