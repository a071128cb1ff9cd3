/* The ranks of a communicator that share memory with this one: its sharing group. Over MPI that are
 * the ranks of its host, also where the communicator spans several hosts. Where nothing is shared
 * (a caller's table, DCP_SHARED_MEMORY=0, one rank) each rank is a group by itself, and its areas
 * are memory of its own. comm/sharing.h is what they do together. */
#pragma once

#include <stdatomic.h>
#include <stddef.h>

#include "comm/rank_groups.h"

/* Memory that all ranks of a group see. Each page (PAGE_BYTES) of an area has a mark, which is 0 at
 * first. Users agree by barriers on who may touch what when. They set all marks back to 0 at their
 * end, and leave nothing in the areas for the next user. */
typedef struct comm_areas {
    size_t n;
    const size_t *bytes;  /* of each area, whole pages */
    unsigned char **data; /* page-aligned */
    _Atomic uint16_t **marks;
    void *memory;
    size_t memory_bytes;
    void *lists;
} comm_areas;

/* They are none then. */
void comm_areas_free(comm_areas *areas);

/* The mark of a page of an area, which becomes 0. A barrier must be between this and other ranks'
 * use of the mark. */
static inline uint16_t comm_areas_take_mark(const comm_areas *areas, size_t area, size_t page) {
    _Atomic uint16_t *at = &areas->marks[area][page];
    const uint16_t mark = atomic_load_explicit(at, memory_order_relaxed);
    if (mark) atomic_store_explicit(at, 0, memory_order_relaxed);
    return mark;
}

typedef struct comm_local {
    const comm_groups *groups; /* the sharing groups of all ranks; own is this one */
    int rank, size;            /* this rank's number in its group; how many it has */
    const int *ranks;          /* [size]: of the group, in the communicator, ascending */
    /* the rest is not for users */
    comm_groups *shared, *alone;    /* of which one is `groups`; shared: NULL where nothing is */
    const struct dcp_comm_ops *ops; /* of the group; NULL: it is one rank */
    void *ctx;
    int own; /* this rank's number in the communicator */
    comm_areas areas;
} comm_local;

/* For communicators: this rank is alone. -1: memory is short. */
int comm_local_make(comm_local *local, int rank, int size);
/* The group of `groups`, which it takes over, that this rank is in; its areas are new ones. NULL:
 * this rank is alone again. */
void comm_local_set(comm_local *local, comm_groups *groups, const struct dcp_comm_ops *ops,
                    void *ctx);
void comm_local_free(comm_local *local);
