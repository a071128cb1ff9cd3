/* The information about processes in /proc. A process that ends while /proc is read is skipped. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* A process, identified by its pid and its start time, because another process may have the same
 * pid later. */
typedef struct launcher_process {
    pid_t pid, parent;
    unsigned long long start; /* in clock ticks of the kernel */
} launcher_process;

typedef void (*launcher_visit)(void *ctx, const launcher_process *process);

/* Returns true if /proc shows this process under its own pid. Returns false if /proc belongs to
 * another PID namespace. */
bool launcher_processes_are_visible(void);

/* Calls `visit` with each child of `parent`, including zombies. */
void launcher_processes_visit(pid_t parent, launcher_visit visit, void *ctx);

/* Calls `enter` with the descendants of the next `levels` generations, but not with the descendants
 * of a process for which `enter` returned 0. */
void launcher_processes_descend(pid_t parent, int levels,
                                int (*enter)(void *ctx, const launcher_process *), void *ctx);

/* Calls `visit` with all descendants of `parent`, except its child `but` and the descendants of
 * `but`. If `but` is 0, there is no exception. */
void launcher_processes_visit_below(pid_t parent, pid_t but, launcher_visit visit, void *ctx);

/* Returns a pidfd of exactly this process; -1 if it is gone. */
int launcher_processes_open(const launcher_process *process);

/* Sends SIGKILL to exactly this process. A `launcher_visit` that ignores `ctx`. */
void launcher_processes_kill(void *ctx, const launcher_process *process);

/* Returns the value of `name` in the environment with which `pid` was started, freed by the caller;
 * NULL if the variable is not set (yet). */
char *launcher_processes_variable(pid_t pid, const char *name);

/* Returns the parent of `pid`; -1 if there is no such process. */
pid_t launcher_processes_parent(pid_t pid);

/* Returns a positive number if `pid` has waited for children that had ended, 0 if it has not, -1 if
 * that is not known. Uses the kernel's count of the page faults of such children, which /proc shows
 * even for a zombie. */
int launcher_processes_waited(pid_t pid);

/* Returns true if `pid` catches, ignores or blocks the signal, which therefore does not end it. */
bool launcher_processes_handles_signal(pid_t pid, int signal);

/* Returns true if `pid` is ending, and has released its memory, including its environment. Its
 * files may still be open, even if it looks like a zombie, because its other threads may still be
 * running. */
bool launcher_processes_is_ending(pid_t pid);

/* Describes what a process is doing: "123 (name), state D, in nfs_wait". The caller frees the text.
 * NULL for a zombie, or if there is no such process. */
char *launcher_processes_describe(pid_t pid);

/* Stacks (stacks.c): what processes are doing, for people who examine a run that hangs. */

/* Writes to `fd`, for each process, a title, what /proc shows about each thread, and the threads'
 * stacks if gdb or eu-stack is installed and has permission. The title contains the rank unless
 * `ranks` is NULL. gdb and eu-stack are given at most `limit_s` per process. A process that was
 * running continues afterwards, and a stopped one remains stopped. The function waits for children
 * of its own, so call it in a process forked for it. It reads no file of /proc for which the kernel
 * takes the lock on a process's memory map, because a process that hangs may hold that lock. */
void launcher_stacks_write(const pid_t *pids, const int *ranks, size_t n, double limit_s, int fd);
