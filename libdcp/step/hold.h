/* Holding a step: while somebody has it open, a store's writer leaves it.
 *
 * A reader opens the step's folder, and its files in that folder whatever its name has become. It
 * holds the step by a shared lock on about.json (F_OFD_SETLK), which needs no right to write and
 * ends with the process. A writer takes a step's name away first and asks then, a reader locks
 * first and looks at the name then; so either the writer sees the lock, or the reader sees that it
 * came too late. A child that the process forks does not hold it. Where the file system has no
 * locks, and where a step has no about.json, nothing is held. */
#pragma once

#include "io/unshared.h"

typedef struct step_hold {
    int folder_fd;
    io_unshared *lock; /* NULL: there is none */
    char *path;        /* by which the folder was opened */
} step_hold;

/* Opens the folder, and where `locks` is not 0 takes the lock; where there is none, errno says why.
 * NULL: it can't be opened; *gone is 1 where there is none of that name. */
step_hold *step_hold_open(const char *folder, int locks, int *gone);

/* Whether the path still leads to the folder that is held. */
int step_hold_is_named(const step_hold *hold);

/* NULL is ignored. */
void step_hold_close(step_hold *hold);

/* The writer's question: whether anybody holds the step whose folder is the entry `name` of the
 * directory. 1 also where that can't be found out, as on an I/O error. */
int step_hold_is_held(int dir_fd, const char *name);
