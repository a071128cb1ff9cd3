/* OUT, where an export goes: whether it may be written there, and the temporary folder beside it,
 * which becomes durable and is then renamed. */
#pragma once

#include <dcp/checkpoint.h>

/* Functions return exit statuses, having said what failed. */

/* Whether `out` is free, or with `replace` an earlier export. */
int export_target_check(const char *out, int hdf5, int replace);
/* The same as far as it depends on the checkpoint: `out` lies outside of it, and holds nothing that
 * no export of it may have written. */
int export_target_check_with(const dcp_checkpoint *ckpt, const char *out);

/* After an export that was killed while it replaced `out`: what it had moved away gets its name
 * back, with a note, or is removed where the name is taken. */
void export_target_recover(const char *out);
/* Makes an empty folder `<out>.tmp-XXXXXX`; its name goes to tmp[PATH_MAX]. */
int export_target_make_tmp(const char *out, char *tmp);
/* Removes `path` and all below it; silent, also where there is nothing. */
void export_target_remove(const char *path);
/* The folder `tmp`, or a file of it, takes the place of `out`, which may be missing, an empty
 * folder (of a folder) or, where `replace` is set, anything: that is removed. PROGRAM_USAGE where
 * another program was there first; a signal that came before the rename ends it. All is durable at
 * the return. */
int export_target_publish(const char *tmp, const char *file, const char *out, int replace);
