/* Open files: a cache of descriptors that are opened on use, and descriptors that forked
 * processes do not share. */
#pragma once

#include <sys/types.h>

#include "io/file.h"

/* Files that are opened when they are used, so that a step may have more files than a process may
 * have open. Those used last stay open, together a quarter of what the process may open
 * (RLIMIT_NOFILE), from 8 to 64 in all of it. Any thread may call. */

/* The file will be opened when it is used: io_use_begin, and the requests of queues (queue.h),
 * which begin and end a use by themselves. `file` stays where it is, and `path` is borrowed, until
 * io_use_close. `folder`: as io_open_regular_in has it. */
void io_use_prepare(io_file *file, int folder, const char *path, io_access access);

/* The same of a file that is open, opened by io_open or io_open_buffered: from now on it may be
 * closed while it is not used. One that was written is synced first. */
void io_use_lend(io_file *file, io_access access);

/* Opens the file, if it is not open; it stays open, as file->fd, until as many calls of io_use_end.
 * Does nothing for other files. */
int io_use_begin(io_file *file, dcp_error *err);
void io_use_end(io_file *file);

/* Whether io_use_begin would open one file too many, as all that are open are in use. */
int io_use_is_full(const io_file *file);

/* How many files may stay open. */
unsigned io_use_most(void);

/* Closes the file, whatever it is; nobody uses it. */
void io_use_close(io_file *file);

/* Open files that forked processes don't share, for locks (F_OFD_SETLK): such a lock belongs to the
 * open file, so a child that shares it would hold the lock as long as it lives. All are in a list
 * of the process, from before they are locked, and a child closes its copies at once. */

typedef struct io_unshared {
    int fd;          /* -1 in a process that was forked since */
    pid_t process;   /* that opened it */
    const char *tag; /* by which io_unshared_has finds it, borrowed; or NULL */
    struct io_unshared *next;
} io_unshared;

/* openat of what is there or is made (0666), and closed on exec. NULL with errno. */
io_unshared *io_unshared_open(int dir_fd, const char *name, int flags, const char *tag);

/* Closes the file, and unlocks it before, for copies as well that a process has which was made past
 * fork(). Another process than the opener only closes and frees its copy. NULL is ignored. Keeps
 * errno. */
void io_unshared_close(io_unshared *file);

/* Whether this process, and not one that it was forked from, has opened one with that tag. */
int io_unshared_has(const char *tag);
