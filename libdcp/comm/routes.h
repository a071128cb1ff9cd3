/* An all-to-all of small messages by way of other ranks: in each of log2(ranks) rounds a rank sends
 * one message to one other, and so talks to few. */
#pragma once

#include "comm/batch.h"

/* Whether an all-to-all goes that way, which all ranks decide alike: `peers` is the largest number
 * of ranks that any of them sends to or receives from, `bytes` the most that it sends or receives.
 * Else each message goes straight to its rank. */
int comm_routes_pay(int ranks, uint64_t peers, uint64_t bytes);

/* Collective, as an all-to-all of dcp_comm_ops; this rank's message to itself is left out. Returns
 * 0, or another value once the watch is broken. */
int comm_routes_alltoall(comm_pairs *pairs, const void *send, const uint64_t *send_bytes,
                         void *recv, const uint64_t *recv_bytes);
