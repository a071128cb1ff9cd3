/* Open files: a cache of descriptors that are opened on use, and descriptors that forked processes
 * do not share. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "io/file.h"

/* Files that are opened on use, so a step may have more files than a process may have open. The
 * most recently used files remain open. Their number in the whole process is a quarter of
 * RLIMIT_NOFILE, but at least 8 and at most 64. Any thread may call these functions. */

/* Prepares a file that will be opened when it is used: by io_fd_acquire, or by the requests of
 * queues (queue.h), which begin and end a use themselves. `file` must not move, and `path` is
 * borrowed, until io_fd_close. `folder`: see io_open_regular_in. */
void io_fd_prepare(io_file *file, int folder, const char *path, io_access access);

/* Like io_fd_prepare, but for a file that io_open or io_open_buffered has opened. From now on the
 * file may be closed while it is not used. A file that was written is synced first. */
void io_fd_adopt(io_file *file, io_access access);

/* Opens the file if necessary; it remains open, as file->fd, until io_fd_release has been called
 * as often as io_fd_acquire. Does nothing for files that are not opened on use. */
int io_fd_acquire(io_file *file, dcp_error *err);
void io_fd_release(io_file *file);

/* Returns true if io_fd_acquire would open one file too many because all open files are in use. */
bool io_fd_cache_is_full(const io_file *file);

/* Returns how many files may remain open. */
unsigned io_fd_cache_limit(void);

/* Closes a file, whether it is opened on use or not. The file must not be in use. */
void io_fd_close(io_file *file);

/* Open files that forked processes don't share, for locks (F_OFD_SETLK). Such a lock belongs to the
 * open file, so a child that shares the file would hold the lock as long as it lives. Therefore
 * the process has a list of these files, to which a file is added before it is locked. A forked
 * child closes its copies of all files in the list immediately. */

typedef struct io_lock_file {
    int fd;          /* -1 in a process that was forked since it was opened */
    pid_t process;   /* the process that opened it */
    const char *tag; /* borrowed, for io_lock_file_has; may be NULL */
    struct io_lock_file *next;
} io_lock_file;

/* Opens a file by openat, or creates it if `flags` say so (mode 0666); it is closed on exec.
 * Returns NULL, with errno, on failure. */
io_lock_file *io_lock_file_open(int dir_fd, const char *name, int flags, const char *tag);

/* Unlocks and closes the file. Unlocking also ends the lock for copies of the descriptor in
 * processes that were made without fork(). A process other than the opener only closes and frees
 * its copy. NULL is ignored. Leaves errno unchanged. */
void io_lock_file_close(io_lock_file *file);

/* Returns true if this process has opened a file with that tag. Files of a process from which it
 * was forked don't count. */
bool io_lock_file_has(const char *tag);
