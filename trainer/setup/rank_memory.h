/* How much memory a rank will need, by kind: for --plan, beside what a run measures, and against
 * what a device has, since a run takes all of that before its first step. */
#ifndef TRAINER_SETUP_RANK_MEMORY_H
#define TRAINER_SETUP_RANK_MEMORY_H

#include "fsdp/fsdp_plan.h"
#include "models/model.h"

typedef struct config config;
typedef struct trainer trainer;

/* Bytes. */
typedef struct setup_memory {
    uint64_t params, grads, moments; /* of the rank's shards; 0 where they are offloaded */
    uint64_t offloaded;              /* in a file: no memory has to be had for it, but for */
    uint64_t paged;                  /* what is worked on at a time */
    uint64_t units;  /* gathered, a micro-batch's gradients, and both on their way */
    uint64_t shared; /* of them, what the ranks of a group have together */
    uint64_t activations;
    uint64_t partial; /* partial sums of gradients */
    uint64_t samples; /* of a step */
    uint64_t buffers; /* of a save */
    uint64_t program; /* code, libraries, MPI */
    uint64_t staging; /* beyond all that: what a fence may copy, where it has to wait */
} setup_memory;

/* Of the rank that plan->layout is of, which has micro-batches, with the partial sums of the rank
 * that has most. sequence: tokens of a sample. */
int setup_memory_predict(const config *c, const model *m, const fsdp_plan *plan, uint64_t sequence,
                         setup_memory *out, dcp_error *err);

/* All but staging. */
uint64_t setup_memory_sum(const setup_memory *m);

/* Collective, before anything is taken: DCP_ERR_NO_MEMORY on all ranks where a device has too
 * little for what its ranks need together; the message has both. Nothing to do on the host. */
int setup_memory_check(const trainer *t, dcp_error *err);

/* `status`; where it is DCP_ERR_NO_MEMORY on a device, *err gets the rank's needs and what is free.
 */
int setup_memory_explain(const trainer *t, int status, dcp_error *err);

/* In MiB, for people. */
double setup_mib(uint64_t bytes);

#endif
