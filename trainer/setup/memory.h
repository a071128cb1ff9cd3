/* How much memory a rank will need, by kind: for --plan, and beside what a run measures. */
#ifndef TRAINER_SETUP_MEMORY_H
#define TRAINER_SETUP_MEMORY_H

#include "config/config.h"
#include "fsdp/fsdp_plan.h"
#include "models/model.h"

/* Bytes. */
typedef struct memory {
    uint64_t params, grads, moments; /* of the rank's shards; 0 where they are offloaded */
    uint64_t offloaded;              /* in a file: no memory has to be had for it, but for */
    uint64_t paged;                  /* what is worked on at a time */
    uint64_t units;                  /* gathered, a leaf's gradients, and both on their way */
    uint64_t shared;                 /* of them, what the ranks of a group have together */
    uint64_t activations;
    uint64_t partial; /* partial sums of gradients */
    uint64_t samples; /* of a step */
    uint64_t buffers; /* of a save */
    uint64_t program; /* code, libraries, MPI */
    uint64_t staging; /* beyond all that: what a fence may copy, where it has to wait */
} memory;

/* Of the rank that plan->layout is of, which has leaves, with the partial sums of the rank that has
 * most. sequence: tokens of a sample. */
int memory_predict(const config *c, const model *m, const fsdp_plan *plan, uint64_t sequence,
                   memory *out, dcp_error *err);

/* All but staging. */
uint64_t memory_sum(const memory *m);

#endif
