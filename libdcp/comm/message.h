/* Messages of any size: between all pairs of ranks, and from one to all. */
#pragma once

#include "comm/comm.h"

/* One message a destination rank, appended piece by piece; messages lie in rank order. */
typedef struct comm_message {
    unsigned char *data;
    uint64_t bytes, capacity;
} comm_message;

/* Makes room for `bytes` more at the end and returns it; NULL: out of memory. Valid until the next
 * call. */
unsigned char *comm_message_append(comm_message *message, uint64_t bytes);

/* Collective. send->data holds send_bytes[r] bytes for each rank r. `receive` is filled likewise,
 * with receive_bytes[r] from each rank; its memory is reused. */
int comm_message_exchange(dcp_comm *comm, const comm_message *send, const uint64_t *send_bytes,
                          comm_message *receive, uint64_t *receive_bytes, dcp_error *err);

/* Collective. The message of `root` becomes that of all ranks; the others' memory is reused. */
int comm_message_broadcast(dcp_comm *comm, comm_message *message, int root, dcp_error *err);
