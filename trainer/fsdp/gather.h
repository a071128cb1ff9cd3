#pragma once

#include <dcp/error.h>

#include "fsdp/fsdp_plan.h"
#include "fsdp/transport.h"
#include "kernels/kernels.h"
#include "timeline/timeline.h"

/* Gathers units' parameters from the shards of all ranks of a group, while something else computes:
 * a table of functions with two implementations. By messages, every rank gets a copy of its own. In
 * memory that the ranks of a host share there is one copy: each rank writes its shard into it, and
 * no byte is copied twice. The bits are the same.
 *
 * All ranks start, finish and release the same units in the same order. */

typedef struct fsdp_gather fsdp_gather;
struct fsdp_gather {
    /* Requires that fewer than `most_in_flight` units are in flight. The storage must not change
     * before the finish. */
    void (*start)(fsdp_gather *g, size_t unit);
    /* Lets transfers proceed. Cheap. */
    void (*poll)(fsdp_gather *g);
    /* Waits for the unit that has been in flight for longest. Returns its parameters [whole_elems],
     * which may be read until the release. Blocks that are dropped after use are released before
     * the finish of the next one. */
    float *(*finish)(fsdp_gather *g);
    void (*release)(fsdp_gather *g, size_t unit); /* NULL if there is nothing to do */
    /* Returns memory in place of the unit's parameters, in which its gradients can be sent in rank
     * order at the end of its backward pass. NULL if there is none. */
    float *(*gradient_room)(fsdp_gather *g, size_t unit);
    void (*destroy)(fsdp_gather *g);

    size_t in_flight, most_in_flight; /* units in flight now, and at most */
    uint64_t sent;                    /* in bytes; with shared memory, what others read */
};

/* The arguments that both implementations need. All pointers are borrowed. */
typedef struct fsdp_gather_of {
    const fsdp_layout *layout;
    float *params; /* this rank's storage; may be memory of alloc_host */
    int bf16;      /* parameters are rounded to bf16 when they are gathered */
    kernels *k;
    timeline *tl; /* records gathers; may be NULL */
} fsdp_gather_of;

int fsdp_gather_by_messages(const fsdp_plan *plan, fsdp_transport *transport,
                            const fsdp_gather_of *of, fsdp_gather **out, dcp_error *err);

/* memory: [fsdp_gather_shared_bytes], zeroed, visible to all ranks of the group and to the kernels;
 * borrowed. comm: the group's. Requires plan->is_shared. */
int fsdp_gather_in_shared_memory(const fsdp_plan *plan, MPI_Comm comm, void *memory,
                                 const fsdp_gather_of *of, fsdp_gather **out, dcp_error *err);
/* 0 if nothing is gathered. */
uint64_t fsdp_gather_shared_bytes(const fsdp_plan *plan);
/* The number of those bytes that a rank never reads if it looks up that many rows of each table:
 * other ranks' rows of tables. */
uint64_t fsdp_gather_shared_unread(const fsdp_plan *plan, double lookups);
/* The storage of parameters within that memory; NULL if parameters are not stored in place. */
float *fsdp_gather_shared_params(const fsdp_plan *plan, void *memory);
