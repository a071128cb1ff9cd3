/* How much memory a rank will need, by kind, and how much this machine has. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "fsdp/fsdp_plan.h"
#include "models/model.h"

/* How much memory this machine allows the ranks of a run. */

typedef struct setup_machine_memory {
    uint64_t all;        /* the memory that all processes on this machine may use together */
    bool is_of_group;    /* `all` is the limit of a control group (Slurm's --mem, a container), not
                          * the machine's memory */
    uint64_t of_process; /* the limit of a process's address space; UINT64_MAX: none */
} setup_machine_memory;

/* Uses the smallest limit of all control groups that contain this process. Finds groups of versions
 * 1 and 2, at the places where Linux distributions mount them. */
setup_machine_memory setup_machine_memory_find(void);

/* How much memory a rank will need, by kind. Used by --plan, for comparison with what a run
 * measures, and for a check that the device has enough: a run allocates all of its device memory
 * before the first step. */

typedef struct config config;
typedef struct trainer trainer;

/* In bytes. */
typedef struct setup_memory {
    uint64_t params, grads, slots; /* the rank's shards; 0 if they are offloaded */
    uint64_t offloaded;            /* parameters and slots in a file; they need no memory */
    uint64_t paged;                /* the part of that file that is in memory at any one time */
    uint64_t units;  /* gathered units, a micro-batch's gradients, and buffers to send both */
    uint64_t shared; /* the part of params or `units` that the ranks of a group share */
    /* The part of `shared` that this rank never reads; not included in params or `units`. */
    uint64_t unread;
    uint64_t activations;
    uint64_t kept;    /* the part of `activations` that only the host's kernels retain */
    uint64_t partial; /* partial sums of gradients */
    uint64_t samples; /* of a step's micro-batches */
    uint64_t files;   /* the rank's part of the files that checkpoints carry */
    uint64_t buffers; /* buffers of a save */
    uint64_t program; /* code, libraries, MPI */
    uint64_t staging; /* not in the sum: copies by a fence that does not wait for a save */
} setup_memory;

/* Predicts the memory of the rank that plan->layout belongs to; the rank must have a micro-batch.
 * Assumes the largest number of partial sums that any rank has. sequence: tokens per sample. files:
 * the bytes of the rank's parts of files, which the plan does not include. */
int setup_memory_predict(const config *c, const model *m, const fsdp_plan *plan, uint64_t sequence,
                         uint64_t files, setup_memory *out, dcp_error *err);

/* Returns the sum of everything that is in memory, without `staging`. */
uint64_t setup_memory_sum(const setup_memory *m);

/* Returns the part of the sum that is in the device's memory if the rank computes on a device. Does
 * not include the memory that libraries need. */
uint64_t setup_memory_on_device(const setup_memory *m, const fsdp_layout *layout);

/* Collective; called before the run allocates memory. Returns DCP_ERR_NO_MEMORY on all ranks if a
 * device has less free memory than its ranks need together; the message has both numbers. Does
 * nothing if ranks compute on the host. */
int setup_memory_check(const trainer *t, dcp_error *err);

/* Returns `status`. If the status is DCP_ERR_NO_MEMORY and ranks compute on devices, adds to *err
 * how much memory the rank needs and how much is free. */
int setup_memory_explain(const trainer *t, int status, dcp_error *err);

/* Converts bytes to MiB, for printing. */
double setup_mib(uint64_t bytes);
