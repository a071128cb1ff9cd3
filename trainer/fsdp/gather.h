/* Gathering a unit's parameters from the shards of all ranks, while something else computes. */
#ifndef TRAINER_FSDP_GATHER_H
#define TRAINER_FSDP_GATHER_H

#include <mpi.h>

#include "../timeline/timeline.h"
#include "layout.h"

enum { FSDP_NO_UNIT = -1 };

typedef struct fsdp_gather {
    const fsdp_layout *layout;
    MPI_Comm comm;
    const float *params; /* this rank's storage */
    float *staging;      /* [gathered_elems of the largest unit] */
    MPI_Request request;
    long unit;      /* that is on its way; FSDP_NO_UNIT */
    double started; /* when it set out */
    timeline *tl;   /* is told of gathers; may be NULL */
} fsdp_gather;

/* Collective. Nothing is on its way. The storage must not change before the finish. */
void fsdp_gather_start(fsdp_gather *g, size_t unit);
/* Lets the transfer proceed; cheap. */
void fsdp_gather_poll(fsdp_gather *g);
/* Waits for the unit that is on its way; whole[whole_elems] becomes its parameters. */
void fsdp_gather_finish(fsdp_gather *g, float *whole);

#endif
