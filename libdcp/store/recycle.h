/* The files of a step that went, kept for the next save to write over.
 *
 * Blocks that a file has already cost less than new ones: nothing is reserved, marked as written or
 * given back (on a disk that discards, all of it twice), and memory that is a file needs no
 * zeroing. A store keeps at most one step so, in `DIR/.trash-spare`, until its next save or its
 * end; what a killed writer leaves there goes like any left-over.
 *
 * Only files that this store itself has written since it was opened are used, and only where nobody
 * else can be reading them: see io_is_alone. */
#ifndef DCP_STORE_RECYCLE_H
#define DCP_STORE_RECYCLE_H

#include "store/store.h"

#define RECYCLE_FOLDER ".trash-spare"

/* Not collective. This rank has written the file that is open as `fd`, for the step. pages: a
 * fingerprint of which bytes it wrote; all others are zero. */
void store_recycle_note(dcp_store *store, uint64_t step, int fd, uint64_t pages);

/* Not collective. Moves the spare file `name` to `path`, if it is as long as a file of the same
 * `pages` and its other bytes are zero. 0: there is none, or none any more. */
int store_recycle_take(dcp_store *store, const char *name, uint64_t pages, const char *path);

/* Whether the files of that step are such: this rank has written some of them. */
int store_recycle_is_written(const dcp_store *store, uint64_t step);

/* Removes what is spare; on ranks that don't lead, nothing. */
void store_recycle_drop(dcp_store *store);

#endif
