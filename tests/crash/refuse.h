/* Makes one call of this process's fail once: a system call on what lies below a folder, with an
 * errno, or an allocation by the library. refuse.c stands in libc's place; what is loaded before a
 * program (LD_PRELOAD) is told by the environment:
 *   REFUSE_BELOW   the folder, absolute
 *   REFUSE_AT      the number of the call, from 1; 0: none
 *   REFUSE_ERRNO   a number; 0: an allocation
 *   REFUSE_ALL     each call fails on whose path has this in it, as on a bad sector
 *   REFUSE_COUNT   a file, which gets the number of calls that there were, and what failed
 * io_uring is refused always, as it passes libc by. */
#ifndef TESTS_REFUSE_H
#define TESTS_REFUSE_H

/* Calls count from now on. `error` 0: allocations. */
void refuse_begin(const char *below, int error, long at);
/* How many there were. */
long refuse_end(void);
/* What failed: the call's name and path, or "". */
const char *refuse_what(void);
/* Calls of this thread don't count until the same with 0. */
void refuse_pause(int paused);

#endif
