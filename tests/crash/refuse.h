/* Makes one call of this process fail once: a system call on what lies below a folder, with an
 * errno, or an allocation by the library. refuse.c replaces functions of libc. If it is preloaded
 * into a program (LD_PRELOAD), the environment controls it:
 *   REFUSE_BELOW   the folder, absolute
 *   REFUSE_AT      the number of the call, starting at 1; 0: none
 *   REFUSE_ERRNO   a number; 0: an allocation
 *   REFUSE_ALL     every call whose path contains this fails, as on a bad sector
 *   REFUSE_COUNT   a file that receives the number of calls, and what failed
 * io_uring is always refused, since it bypasses libc. */
#ifndef TESTS_REFUSE_H
#define TESTS_REFUSE_H

/* Starts counting calls. `error` 0: counts allocations. */
void refuse_begin(const char *below, int error, long at);
/* Ends counting, and returns the number of calls. */
long refuse_end(void);
/* Returns what failed: the call's name and path, or "". */
const char *refuse_what(void);
/* Calls of this thread don't count from here until refuse_pause(0). */
void refuse_pause(int paused);

#endif
