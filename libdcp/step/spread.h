/* Messages of 64-bit words to any ranks, put together in any order: what goes to each rank is
 * counted first, then placed, then exchanged. */
#pragma once

#include "comm/message.h"

typedef struct step_spread {
    dcp_comm *comm;
    uint64_t *bytes, *at, *received; /* to each rank, placed of it, from each rank */
    comm_message out, in;            /* `in` is 8-byte-aligned */
} step_spread;

/* To be freed in either case. */
int step_spread_make(step_spread *spread, dcp_comm *comm, dcp_error *err);

static inline void step_spread_count(step_spread *spread, int rank, uint64_t words) {
    spread->bytes[rank] += 8 * words;
}

/* After the counting: memory for all of it. */
int step_spread_begin(step_spread *spread, dcp_error *err);

/* Where the next `words` words to the rank go. */
uint64_t *step_spread_place(step_spread *spread, int rank, uint64_t words);

/* Collective, beginning with comm_agree of `status`, which includes that of the functions above.
 * Then `received` bytes of each rank lie in `in`, in rank order. */
int step_spread_exchange(step_spread *spread, int status, dcp_error *err);

void step_spread_free(step_spread *spread);
