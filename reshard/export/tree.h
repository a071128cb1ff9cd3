/* Folders that programs write: under a temporary name beside the final one, durable, then renamed.
 */
#ifndef RESHARD_TREE_H
#define RESHARD_TREE_H

/* Functions return exit statuses, having said what failed. */

/* What an export that was killed while it replaced `path` had moved away comes back, with a note,
 * or goes where there is something under that name. */
void tree_recover(const char *path);
/* Whether the folder holds model.safetensors or its index, as an export does. */
int tree_holds_model(const char *path);
/* Makes an empty folder `<path>.tmp-XXXXXX`; its name goes to tmp[PATH_MAX]. */
int tree_make_tmp(const char *path, char *tmp);
/* Makes every file and folder below `path` durable, and `path` itself. */
int tree_sync(const char *path);
/* Removes `path` and all below it; silent, also where there is nothing. */
void tree_remove(const char *path);
/* `tmp`, a file or a folder, takes the place of `path`, which may be missing, an empty folder (of a
 * folder) or, where `replace` is set, anything: that is removed. PROGRAM_USAGE where another
 * program was there first. The rename is durable at the return. */
int tree_publish(const char *tmp, const char *path, int replace);

#endif
