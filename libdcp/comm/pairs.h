/* Collectives made of messages between two ranks. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "comm/batch.h"
#include "dcp/comm.h"

/* An all-to-all of small messages can go by way of other ranks: in each of log2(ranks) rounds a
 * rank sends one message to one other rank, so it has few peers. */

/* Returns true if an all-to-all goes that way; otherwise each message goes straight to its rank.
 * All ranks come to the same decision: `peers` is the largest number of ranks that any rank sends
 * to or receives from, and `bytes` the most that any rank sends or receives. */
bool comm_pairs_should_route(int ranks, uint64_t peers, uint64_t bytes);

/* Collectives that never wait inside MPI, whose own collectives would wait for ever for a rank that
 * was killed. A rank that waits for another one checks whether that rank has ended, and receives
 * the failures that others report. */

/* For a context that begins with a comm_pairs. The functions return 0, or another value once the
 * watch is broken; pending receives are cancelled then. */
extern const dcp_comm_ops comm_pairs_ops;

/* Allocates comm_pairs.spare. Returns NULL if memory is short. */
uint64_t *comm_pairs_make_spare(void);
