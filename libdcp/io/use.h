/* Files that are opened when they are used, so that a step may have more files than a process may
 * have open. Those used last stay open, together a quarter of what the process may open
 * (RLIMIT_NOFILE), from 8 to 64 in all of it. Any thread may call. */
#pragma once

#include "io/file.h"

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
