/* Holding a step: a store's writer does not remove a step that somebody has open.
 *
 * A reader opens the step's folder, and then opens the files through that descriptor, so the folder
 * may be renamed meanwhile. It holds the step by a shared lock on about.json (F_OFD_SETLK), which
 * requires no permission to write and ends with the process. A writer that removes a step claims it
 * by an exclusive lock on the same file, and keeps this lock until the step is removed. So a step
 * that is held keeps its name, and a step that is claimed cannot be held any more.
 *
 * A writer that replaces a step or sets it aside renames it in any case, and checks afterwards
 * whether its files may be removed. A reader locks first and checks the name afterwards. So either
 * the writer sees the lock, or the reader sees that it came too late.
 *
 * Both locks end with their processes, and a forked child has neither. If the file system has no
 * locks or the step has no about.json, nothing is held or claimed. */
#pragma once

#include <stdbool.h>

#include "io/descriptors.h"

typedef struct format_hold {
    int folder_fd;
    io_lock_file *lock; /* NULL: no lock */
    char *path;         /* the path by which the folder was opened */
    bool is_claimed;    /* the step could not be locked because a writer has claimed it */
} format_hold;

/* Opens the folder and, if `locks` is not 0, tries to lock the step. If only the lock fails,
 * hold->lock is NULL, and errno says why. If a writer has claimed the step, waits until the step or
 * the claim disappears, but not for long, as the writer may have been stopped. Returns NULL if the
 * folder cannot be opened; *gone is 1 if it does not exist. */
format_hold *format_hold_open(const char *folder, int locks, bool *gone);

/* Returns true if the path still leads to the folder that is held, or if that cannot be
 * determined. */
bool format_hold_is_named(const format_hold *hold);

/* NULL is ignored. */
void format_hold_close(format_hold *hold);

/* For the writer: returns true if a reader holds the step whose folder is the entry `name` of the
 * directory, or if that cannot be determined, for example after an I/O error. */
bool format_hold_is_held(int dir_fd, const char *name);

/* Claims the step for the writer, so no reader can hold it before format_hold_unclaim. Returns
 * false if a reader holds it, or if that cannot be determined. Otherwise returns true; *claim is
 * then NULL if there is nothing to lock, or if this process has no permission to write to the
 * step. */
bool format_hold_claim(int dir_fd, const char *name, io_lock_file **claim);

/* NULL is ignored. */
void format_hold_unclaim(io_lock_file *claim);
