/* How much memory a rank will need, by kind, and how much this machine has. */
#pragma once

#include <stdint.h>

#include "fsdp/fsdp_plan.h"
#include "models/model.h"

/* How much memory this machine lets the ranks of a run have. */

typedef struct setup_machine_memory {
    uint64_t all;        /* of the processes here together */
    int is_of_group;     /* a control group has less than the machine: Slurm's --mem, a container */
    uint64_t of_process; /* the address space that a process may have; UINT64_MAX: any */
} setup_machine_memory;

/* Of control groups of version 1 and 2, where Linux distributions mount them, the least limit of
 * those that this process is in. */
setup_machine_memory setup_machine_memory_find(void);

/* How much memory a rank will need, by kind: for --plan, beside what a run measures, and against
 * what a device has, since a run takes all of that before its first step. */

typedef struct config config;
typedef struct trainer trainer;

/* Bytes. */
typedef struct setup_memory {
    uint64_t params, grads, slots; /* the rank's shards of them; 0 where they are offloaded */
    uint64_t offloaded;            /* parameters and slots in a file, which takes no memory */
    uint64_t paged;                /* the part of the file that is worked on at a time */
    uint64_t units;  /* gathered units, a micro-batch's gradients, and buffers to send them */
    uint64_t shared; /* the part of params or `units` that the ranks of a group share */
    uint64_t unread; /* the part of `shared` that this rank never reads: neither of them has it */
    uint64_t activations;
    uint64_t kept;    /* the part of them that the host's kernels keep: others keep none */
    uint64_t partial; /* partial sums of gradients */
    uint64_t samples; /* of a step */
    uint64_t files;   /* the rank's part of those that checkpoints carry */
    uint64_t buffers; /* of a save */
    uint64_t program; /* code, libraries, MPI */
    uint64_t staging; /* in addition: what a fence may copy instead of waiting for a save */
} setup_memory;

/* For the rank of plan->layout, which must have a micro-batch. Partial sums are those of the rank
 * with the most. sequence: tokens of a sample. files: bytes of the rank's, which a plan does not
 * know. */
int setup_memory_predict(const config *c, const model *m, const fsdp_plan *plan, uint64_t sequence,
                         uint64_t files, setup_memory *out, dcp_error *err);

/* All but staging. */
uint64_t setup_memory_sum(const setup_memory *m);

/* What of it lies in a device's memory where the rank computes on one: not what libraries take. */
uint64_t setup_memory_on_device(const setup_memory *m, const fsdp_layout *layout);

/* Collective, before the run takes memory: DCP_ERR_NO_MEMORY on all ranks where a device has less
 * free memory than its ranks need together; the message has both numbers. Does nothing where ranks
 * compute on the host. */
int setup_memory_check(const trainer *t, dcp_error *err);

/* Returns `status`. Where it is DCP_ERR_NO_MEMORY on a device, adds to *err what the rank needs and
 * what is free. */
int setup_memory_explain(const trainer *t, int status, dcp_error *err);

/* Bytes as MiB, to be printed. */
double setup_mib(uint64_t bytes);
