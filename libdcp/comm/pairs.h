/* Collectives made of messages between two ranks. */
#pragma once

#include <stdint.h>

#include "comm/batch.h"
#include "dcp/comm.h"

/* An all-to-all of small messages by way of other ranks: in each of log2(ranks) rounds a rank sends
 * one message to one other, and so talks to few. */

/* Whether an all-to-all goes that way, which all ranks decide alike: `peers` is the largest number
 * of ranks that any of them sends to or receives from, `bytes` the most that it sends or receives.
 * Else each message goes straight to its rank. */
int comm_routes_pay(int ranks, uint64_t peers, uint64_t bytes);

/* Collectives made of messages between two ranks, none of which waits inside MPI: whoever waits
 * looks whether the rank that it waits for has ended, and hears of it from others. MPI's own
 * collectives would wait for ever for a rank that was killed. */

/* Of a context that begins with a comm_pairs. A function returns 0, or another value once the watch
 * is broken. What was to be received is cancelled then. */
extern const dcp_comm_ops comm_pairs_ops;

/* Room for `spare`; NULL where memory is short. */
uint64_t *comm_pairs_make_spare(void);
