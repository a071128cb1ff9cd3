/* Collectives made of messages between two ranks, none of which waits inside MPI: whoever waits
 * looks whether the rank that it waits for has ended, and hears of it from others. MPI's own
 * collectives would wait for ever for a rank that was killed. */
#pragma once

#include <stdint.h>

#include "comm/batch.h"
#include "dcp/comm.h"

/* Of a context that begins with a comm_pairs. A function returns 0, or another value once the watch
 * is broken. What was to be received is cancelled then. */
extern const dcp_comm_ops comm_pairs_ops;

/* Room for `spare`; NULL where memory is short. */
uint64_t *comm_pairs_make_spare(void);
