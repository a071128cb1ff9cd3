/* Files of one file system that share their extents (XFS, btrfs). */
#pragma once

#include <stdint.h>

/* Whole pages of `to` become those of `from` at the same offset; the disk keeps them once until one
 * of the files is written there. 0, or -1 with errno; then the range of `to` is undefined. */
int io_clone(int from, int to, uint64_t offset, uint64_t bytes);

/* Whether io_clone will fail with this errno for all files of the two folders. */
int io_clone_is_refused(int error);

/* Reserves space for a range inside the file, where the file system can. 0, or -1 with errno. */
int io_reserve_range(int fd, uint64_t offset, uint64_t bytes);
