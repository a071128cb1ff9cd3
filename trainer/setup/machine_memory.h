/* How much memory this machine lets the ranks of a run have. */
#pragma once

#include <stdint.h>

typedef struct setup_machine_memory {
    uint64_t all;        /* of the processes here together */
    int is_of_group;     /* a control group has less than the machine: Slurm's --mem, a container */
    uint64_t of_process; /* the address space that a process may have; UINT64_MAX: any */
} setup_machine_memory;

/* Of control groups of version 1 and 2, where Linux distributions mount them, the least limit of
 * those that this process is in. */
setup_machine_memory setup_machine_memory_find(void);
