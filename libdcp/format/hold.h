/* Holding a step: while somebody has it open, a store's writer leaves it.
 *
 * A reader opens the step's folder, and its files in that folder whatever its name has become. It
 * holds the step by a shared lock on about.json (F_OFD_SETLK), which needs no right to write and
 * ends with the process. A writer that removes a step claims it by an exclusive lock on the same
 * file, and has that until the step is gone; so a step that is held keeps its name, and one that is
 * claimed can't be held any more.
 *
 * A writer that replaces a step, or sets it aside, takes its name in any case, and asks afterwards
 * whether its files may go. A reader locks first and looks at the name then; so either the writer
 * sees the lock, or the reader sees that it came too late.
 *
 * Both locks end with their processes, and a child that a process forks has neither. Where the file
 * system has no locks, and where a step has no about.json, nothing is held or claimed. */
#pragma once

#include "io/descriptors.h"

typedef struct format_hold {
    int folder_fd;
    io_unshared *lock; /* NULL: there is none */
    char *path;        /* by which the folder was opened */
    int is_claimed;    /* there is no lock, as a writer has claimed the step */
} format_hold;

/* Opens the folder, and where `locks` is not 0 takes the lock; where there is none, errno says why.
 * Where a writer has claimed the step, waits until the step or the claim is gone, but not for long:
 * the writer may be stopped. NULL: the folder can't be opened; *gone is 1 where there is none of
 * that name. */
format_hold *format_hold_open(const char *folder, int locks, int *gone);

/* Whether the path still leads to the folder that is held; 1 also where that can't be found out. */
int format_hold_is_named(const format_hold *hold);

/* NULL is ignored. */
void format_hold_close(format_hold *hold);

/* The writer's question: whether a reader holds the step whose folder is the entry `name` of the
 * directory. 1 also where that can't be found out, as on an I/O error. */
int format_hold_is_held(int dir_fd, const char *name);

/* Claims the step for the writer, so that no reader comes to hold it before format_hold_unclaim. 0:
 * a reader holds it, or that can't be found out. *claim is NULL where nobody holds it and there is
 * nothing to lock, or it may not be written to. */
int format_hold_claim(int dir_fd, const char *name, io_unshared **claim);

/* NULL is ignored. */
void format_hold_unclaim(io_unshared *claim);
