/* What processes are doing, for people who want to know why a run hangs. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

/* Writes of each process to `fd`: a title, with its rank where `ranks` is not NULL, what /proc
 * knows of each of its threads, and the stacks of these by gdb or eu-stack where one of them is
 * installed and may look. These get `limit_s` for a process. One that ran before runs on
 * afterwards, and one that was stopped stays stopped. Waits for children of its own, so that it is
 * best called in a process forked for it. Nothing is read that waits for the memory of the process:
 * it may be stuck while it changes that. */
void launcher_stacks_write(const pid_t *pids, const int *ranks, size_t n, double limit_s, int fd);
