/* Gathering units' parameters from the shards of all ranks of a group, while something else
 * computes: a table of functions with two implementations. By messages, every rank gets a copy of
 * its own. In memory that the ranks of a host share there is one copy: each puts its shard into it,
 * and no byte is copied twice. The bits are the same.
 *
 * All ranks start, finish and release the same units in the same order. */
#pragma once

#include "fsdp/fsdp_plan.h"
#include "fsdp/transport.h"
#include "kernels/kernels.h"
#include "timeline/timeline.h"
#include <dcp/error.h>

typedef struct fsdp_gather fsdp_gather;
struct fsdp_gather {
    /* Fewer than `most` units are in flight. The storage must not change before the finish. */
    void (*start)(fsdp_gather *g, size_t unit);
    /* Lets transfers proceed; cheap. */
    void (*poll)(fsdp_gather *g);
    /* Waits for the unit that has been in flight for longest; returns where its parameters stand
     * [whole_elems], to be read until the release. Blocks that do not stay are released one before
     * the finish of the next. */
    float *(*finish)(fsdp_gather *g);
    void (*release)(fsdp_gather *g, size_t unit); /* NULL: there is nothing to do */
    /* Memory where the unit's gradients can stand in rank order while they are sent, at the end of
     * its backward, in place of its parameters. NULL: there is none. */
    float *(*gradient_room)(fsdp_gather *g, size_t unit);
    void (*destroy)(fsdp_gather *g);

    size_t in_flight, most_in_flight; /* units in flight, and how many can be */
    uint64_t sent;                    /* bytes; in shared memory: those that others read */
};

/* What both are made of. All is borrowed. */
typedef struct fsdp_gather_of {
    const fsdp_layout *layout;
    float *params; /* this rank's storage; also memory of alloc_host */
    int bf16;      /* parameters arrive rounded to it */
    kernels *k;
    timeline *tl; /* is told of gathers; may be NULL */
} fsdp_gather_of;
