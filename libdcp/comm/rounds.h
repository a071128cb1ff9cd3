/* Many all-to-alls one after the other. Their sizes are agreed on at once, so that a round is a
 * single collective and allocates nothing. */
#pragma once

#include <stddef.h>

#include "comm/comm.h"

/* So many rounds at a time keep the tables of sizes small, however many ranks there are. */
#define COMM_ROUNDS_AT_ONCE 16

typedef struct comm_rounds {
    dcp_comm *comm;
    size_t n;
    uint64_t *send, *receive;   /* bytes to and from each rank: [round * ranks + rank] */
    uint64_t most_out, most_in; /* of all messages of a round together */
} comm_rounds;

/* Collective: tables for n rounds, all sizes 0. To be freed in either case. */
int comm_rounds_make(comm_rounds *rounds, dcp_comm *comm, size_t n, dcp_error *err);

/* Collective, once `send` is filled: the rest is known afterwards. */
int comm_rounds_agree(comm_rounds *rounds, dcp_error *err);

/* Collective: `out` holds the messages to all ranks, in rank order without gaps; `in` is filled
 * likewise. */
int comm_rounds_run(const comm_rounds *rounds, size_t round, const void *out, void *in,
                    dcp_error *err);

/* The same the other way round: `receive` bytes go out, `send` bytes come in. */
int comm_rounds_answer(const comm_rounds *rounds, size_t round, const void *out, void *in,
                       dcp_error *err);

void comm_rounds_free(comm_rounds *rounds);
