/* A rank's process, as other processes can look it up: whether it has ended. */
#pragma once

#include <stdint.h>

/* Zeroed: a process that nobody can look up. */
typedef struct comm_process {
    uint64_t kernel;     /* the boot that it runs in */
    uint64_t name_space; /* in which `pid` is its number, and `start` its time; 0: not known */
    uint64_t start;      /* when it began, in the kernel's ticks: a pid may be used again */
    int64_t pid;
} comm_process;

/* This process. */
void comm_process_find(comm_process *out);

/* Whether `own`, this process, can tell if `other` has ended: they are under one kernel, and in one
 * PID namespace and time namespace. */
int comm_process_can_tell(const comm_process *own, const comm_process *other);

/* Whether `other` has ended, for which it need not have been waited for (a zombie has ended). 0 as
 * well where `own`, this process, can't tell. */
int comm_process_has_ended(const comm_process *own, const comm_process *other);
