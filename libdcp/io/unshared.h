/* Open files that forked processes don't share, for locks (F_OFD_SETLK): such a lock belongs to the
 * open file, so a child that shares it would hold the lock as long as it lives. All are in a list
 * of the process, from before they are locked, and a child closes its copies at once. */
#pragma once

#include <sys/types.h>

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
