/* Recycled files: those of a step that was removed, which the next save overwrites.
 *
 * To overwrite a file costs less than to write a new one: the file system neither reserves nor
 * frees blocks, and a file in memory needs no zeroing. A store keeps the files of at most one step,
 * in `spare` of the writer's folder, until its next save or until it is closed.
 *
 * Only files are used that this store itself has written since it was opened, and that nobody else
 * can be reading: see io_is_alone. */
#pragma once

#include "store/store.h"

#define RECYCLE_FOLDER "spare"

/* Not collective. This rank has written the file that is open as `fd`, for the step. pages: a
 * fingerprint of which bytes it wrote; all others are zero. */
void store_recycle_note(dcp_store *store, uint64_t step, int fd, uint64_t pages);

/* Not collective. Moves the recycled file `name` to `path` and returns 1, where it was noted with
 * the same `pages`. Otherwise the file is removed, if there is one, and the return value is 0. */
int store_recycle_take(dcp_store *store, const char *name, uint64_t pages, const char *path);

/* Whether the files of that step are such: this rank has written some of them. */
int store_recycle_is_written(const dcp_store *store, uint64_t step);

/* Removes all recycled files; on ranks that don't lead, nothing. */
void store_recycle_drop(dcp_store *store);
