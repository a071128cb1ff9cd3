#pragma once

#include <dcp/error.h>
#include <stdbool.h>

#include "fsdp/fsdp_plan.h"
#include "fsdp/transport.h"
#include "kernels/kernels.h"
#include "timeline/timeline.h"

/* Gathers units' parameters from the shards of all ranks of a group, during other computation: a
 * table of functions with two implementations. With messages, every rank gets its own copy. With
 * memory that the ranks of a host share, there is only one copy, into which each rank writes its
 * shard, so no byte is copied twice. Both implementations give the same bits.
 *
 * All ranks start, finish and release the same units in the same order. */

typedef struct fsdp_gather fsdp_gather;
struct fsdp_gather {
    /* Starts a gather. Requires that fewer than `most_in_flight` units are in flight. The storage
     * must not change before `finish` returns. */
    void (*start)(fsdp_gather *g, size_t unit);
    /* Lets transfers proceed. Cheap. */
    void (*poll)(fsdp_gather *g);
    /* Waits for the unit that has been in flight longest. Returns its parameters [whole_elems],
     * which may be read until `release`. If blocks are dropped after use, the caller releases each
     * before it finishes the next one. */
    float *(*finish)(fsdp_gather *g);
    void (*release)(fsdp_gather *g, size_t unit); /* NULL if there is nothing to do */
    /* Returns memory that is unused at the end of the unit's backward pass, from which its
     * gradients can be sent in rank order; a block's parameters may be overwritten. The member or
     * its result is NULL if there is no such memory. */
    float *(*gradient_buffer)(fsdp_gather *g, size_t unit);
    void (*destroy)(fsdp_gather *g);

    size_t in_flight, most_in_flight; /* units in flight now, and at most */
    uint64_t sent;                    /* in bytes; with shared memory, the bytes that others read */
};

/* The arguments that both implementations need. All pointers are borrowed. */
typedef struct fsdp_gather_of {
    const fsdp_layout *layout;
    float *params; /* this rank's storage; may be memory from alloc_host */
    bool bf16;     /* parameters are rounded to bf16 when they are gathered */
    kernels *k;
    timeline *tl; /* records gathers; may be NULL */
} fsdp_gather_of;

int fsdp_gather_by_messages(const fsdp_plan *plan, fsdp_transport *transport,
                            const fsdp_gather_of *of, fsdp_gather **out, dcp_error *err);

/* memory: [fsdp_gather_shared_bytes], zeroed, visible to all ranks of the group and to the kernels;
 * borrowed. comm: the group's communicator. Requires plan->is_shared. */
int fsdp_gather_in_shared_memory(const fsdp_plan *plan, MPI_Comm comm, void *memory,
                                 const fsdp_gather_of *of, fsdp_gather **out, dcp_error *err);
/* The number of bytes of the shared memory that fsdp_gather_in_shared_memory requires; 0 if nothing
 * is gathered. */
uint64_t fsdp_gather_shared_bytes(const fsdp_plan *plan);
/* The number of bytes of the shared memory that a rank does not read if it looks up `lookups` rows
 * of each table. These bytes belong to rows that other ranks hold. */
uint64_t fsdp_gather_shared_unread(const fsdp_plan *plan, double lookups);
/* The storage of parameters within the shared memory; NULL if parameters are not stored in
 * place. */
float *fsdp_gather_shared_params(const fsdp_plan *plan, void *memory);
