/* What /proc tells of processes. They come and go meanwhile: one that has vanished is skipped. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

/* A process by its number, which another one may have later, and by when it was started. */
typedef struct launcher_process {
    pid_t pid, parent;
    unsigned long long start; /* in the kernel's ticks */
} launcher_process;

typedef void (*launcher_visit)(void *ctx, const launcher_process *process);

/* Whether /proc shows this process under its number; it may be that of another PID namespace. */
int launcher_processes_known(void);

/* Calls `visit` with each process whose parent is `parent`, also with zombies. */
void launcher_processes_visit(pid_t parent, launcher_visit visit, void *ctx);

/* The same with those of up to `levels` generations, but not with what descends from a process for
 * which `enter` returns 0. */
void launcher_processes_descend(pid_t parent, int levels,
                                int (*enter)(void *ctx, const launcher_process *), void *ctx);

/* Calls `visit` with all that descend from `parent`, but for its child `but`, and what descends
 * from that; 0: for none. */
void launcher_processes_visit_below(pid_t parent, pid_t but, launcher_visit visit, void *ctx);

/* A pidfd of this very process; -1 where it is gone. */
int launcher_processes_open(const launcher_process *process);

/* SIGKILL to this very process. A `launcher_visit`, of which `ctx` is not looked at. */
void launcher_processes_kill(void *ctx, const launcher_process *process);

/* The value of `name` in the environment with which `pid` was started, freed by the caller; NULL
 * where it has none (yet). */
char *launcher_processes_variable(pid_t pid, const char *name);

/* Its parent; -1 where there is no such process. */
pid_t launcher_processes_parent(pid_t pid);

/* How many children of `pid`, which may be a zombie, have ended and been waited for, by what the
 * kernel has added up of them: 0 or more than 0. -1: not known. */
int launcher_processes_waited(pid_t pid);

/* Whether a signal is caught, ignored or held back: it does not end `pid` by itself. */
int launcher_processes_takes(pid_t pid, int signal);

/* Whether `pid` is on its way to its end: it has no environment any more, but files which it holds
 * may still be open, also where it looks like a zombie and has threads. */
int launcher_processes_is_ending(pid_t pid);

/* What a process is doing: "123 (name), state D, in nfs_wait". NULL for a zombie, or where there is
 * none; freed by the caller. */
char *launcher_processes_describe(pid_t pid);

/* What processes are doing, for people who want to know why a run hangs. */

/* Writes of each process to `fd`: a title, with its rank where `ranks` is not NULL, what /proc
 * knows of each of its threads, and the stacks of these by gdb or eu-stack where one of them is
 * installed and may look. These get `limit_s` for a process. One that ran before runs on
 * afterwards, and one that was stopped stays stopped. Waits for children of its own, so that it is
 * best called in a process forked for it. Nothing is read that waits for the memory of the process:
 * it may be stuck while it changes that. */
void launcher_stacks_write(const pid_t *pids, const int *ranks, size_t n, double limit_s, int fd);
