/* How much memory a rank will need, by kind, and how much this machine has. */
#pragma once

#include <stdint.h>

#include "fsdp/fsdp_plan.h"
#include "models/model.h"

/* How much memory this machine allows the ranks of a run. */

typedef struct setup_machine_memory {
    uint64_t all;        /* for all processes on this machine together */
    int is_of_group;     /* a control group has less than the machine: Slurm's --mem, a container */
    uint64_t of_process; /* the limit of a process's address space; UINT64_MAX: none */
} setup_machine_memory;

/* Uses the smallest limit of all control groups that contain this process, of versions 1 and 2,
 * mounted where Linux distributions mount them. */
setup_machine_memory setup_machine_memory_find(void);

/* How much memory a rank will need, by kind: for --plan, for comparison with what a run measures,
 * and for a check against a device's memory, all of which a run allocates before its first step. */

typedef struct config config;
typedef struct trainer trainer;

/* In bytes. */
typedef struct setup_memory {
    uint64_t params, grads, slots; /* the rank's shards; 0 for those that are offloaded */
    uint64_t offloaded;            /* parameters and slots in a file, which needs no memory */
    uint64_t paged;                /* the part of the file that is worked on at a time */
    uint64_t units;  /* gathered units, a micro-batch's gradients, and buffers to send them */
    uint64_t shared; /* the part of params or `units` that the ranks of a group share */
    /* The part of `shared` that this rank never reads; not included in params or `units`. */
    uint64_t unread;
    uint64_t activations;
    uint64_t kept;    /* the part of `activations` that only the host's kernels retain */
    uint64_t partial; /* partial sums of gradients */
    uint64_t samples; /* of a step */
    uint64_t files;   /* the rank's part of the files that checkpoints carry */
    uint64_t buffers; /* of a save */
    uint64_t program; /* code, libraries, MPI */
    uint64_t staging; /* in addition: what a fence may copy instead of waiting for a save */
} setup_memory;

/* Predicts the memory of the rank of plan->layout, which must have a micro-batch. Partial sums are
 * those of the rank with the most. sequence: tokens per sample. files: the bytes of the rank's
 * files, which a plan does not know. */
int setup_memory_predict(const config *c, const model *m, const fsdp_plan *plan, uint64_t sequence,
                         uint64_t files, setup_memory *out, dcp_error *err);

/* Everything but staging. */
uint64_t setup_memory_sum(const setup_memory *m);

/* The part that is in a device's memory if the rank computes on one, without what libraries
 * need. */
uint64_t setup_memory_on_device(const setup_memory *m, const fsdp_layout *layout);

/* Collective; called before the run allocates memory. Returns DCP_ERR_NO_MEMORY on all ranks if a
 * device has less free memory than its ranks need together; the message has both numbers. Does
 * nothing if ranks compute on the host. */
int setup_memory_check(const trainer *t, dcp_error *err);

/* Returns `status`. If that is DCP_ERR_NO_MEMORY on a device, adds to *err what the rank needs and
 * what is free. */
int setup_memory_explain(const trainer *t, int status, dcp_error *err);

/* Bytes in MiB, for printing. */
double setup_mib(uint64_t bytes);
