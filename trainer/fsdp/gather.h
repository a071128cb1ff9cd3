/* Gathering units' parameters from the shards of all ranks of a group, by messages or in memory
 * that the ranks of a host share, while something else computes. */
#pragma once

#include <dcp/error.h>

#include "fsdp/fsdp_plan.h"
#include "fsdp/transport.h"
#include "kernels/kernels.h"
#include "timeline/timeline.h"

/* Gathering units' parameters from the shards of all ranks of a group, while something else
 * computes: a table of functions with two implementations. By messages, every rank gets a copy of
 * its own. In memory that the ranks of a host share there is one copy: each puts its shard into it,
 * and no byte is copied twice. The bits are the same.
 *
 * All ranks start, finish and release the same units in the same order. */

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

/* Gathering by messages. */

int fsdp_gather_by_messages(const fsdp_plan *plan, fsdp_transport *transport,
                            const fsdp_gather_of *of, fsdp_gather **out, dcp_error *err);

/* Gathering in memory that the ranks of a host share. */

/* memory: [fsdp_gather_shared_bytes], zeroed, seen by all ranks of the group and by the kernels;
 * borrowed. comm: of the group. plan->is_shared is set. */
int fsdp_gather_in_shared_memory(const fsdp_plan *plan, MPI_Comm comm, void *memory,
                                 const fsdp_gather_of *of, fsdp_gather **out, dcp_error *err);
/* 0 where nothing is gathered. */
uint64_t fsdp_gather_shared_bytes(const fsdp_plan *plan);
/* The part of them that a rank never reads which looks up so many rows of each table: others' rows
 * of tables. */
uint64_t fsdp_gather_shared_unread(const fsdp_plan *plan, double lookups);
/* Where the storage of parameters is in that memory; NULL: it is not in there, they are not stored
 * in place. */
float *fsdp_gather_shared_params(const fsdp_plan *plan, void *memory);
