/* Gathering units' parameters from the shards of all ranks of a group, while something else
 * computes. */
#ifndef TRAINER_FSDP_GATHER_H
#define TRAINER_FSDP_GATHER_H

#include "../timeline/timeline.h"
#include "kernels/kernels.h"
#include "layout.h"
#include "transport.h"

/* A unit on its way. */
typedef struct fsdp_flight {
    float *staging; /* [gathered_elems] of the units that may use it */
    fsdp_transfer transfer;
    size_t unit;
    double started;
} fsdp_flight;

typedef struct fsdp_gather {
    const fsdp_layout *layout;
    fsdp_transport *transport;
    const float *params; /* this rank's storage */
    fsdp_flight *flights;
    size_t n_flights;
    size_t oldest, flying; /* those from `oldest` on, around the end */
    uint64_t sent;         /* bytes */
    int bf16;              /* parameters arrive rounded to it */
    kernels *k;            /* rounds them */
    timeline *tl;          /* is told of gathers; may be NULL */
} fsdp_gather;

/* Collective. Fewer than n_flights units are on their way. The storage must not change before the
 * finish. */
void fsdp_gather_start(fsdp_gather *g, size_t unit);
/* Lets transfers proceed; cheap. */
void fsdp_gather_poll(fsdp_gather *g);
/* Waits for the unit that has been on its way for longest; whole[whole_elems] becomes its
 * parameters. */
void fsdp_gather_finish(fsdp_gather *g, float *whole);

#endif
