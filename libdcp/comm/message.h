/* Messages of any size: between all pairs of ranks, and from one to all. */
#pragma once

#include "comm/comm.h"

/* Memory that is mostly enough for what comes from all ranks, and from one to all, such as tables.
 * It is taken before it is known whether it is needed, and not touched then. */
#define COMM_READY_BYTES ((uint64_t)1 << 20)
#define COMM_READY_FOR_ALL ((uint64_t)4 << 20)

/* One message a destination rank, appended piece by piece; messages lie in rank order. */
typedef struct comm_message {
    unsigned char *data;
    uint64_t bytes, capacity;
} comm_message;

/* Makes room for `bytes` more at the end and returns it; NULL: out of memory. Valid until the next
 * call. */
unsigned char *comm_message_append(comm_message *message, uint64_t bytes);

/* Collective, beginning with comm_agree of `status`. send->data holds send_bytes[r] bytes for each
 * rank r. `receive` is filled likewise, with receive_bytes[r] from each rank; its memory is reused.
 * A rank that has failed needs no messages. Takes `ready` bytes, as many on all ranks, before it
 * is known how much comes: two all-to-alls, where no message is longer than a rank's part in them.
 */
int comm_message_agree_exchange(dcp_comm *comm, int status, uint64_t ready,
                                const comm_message *send, const uint64_t *send_bytes,
                                comm_message *receive, uint64_t *receive_bytes, dcp_error *err);

/* The same of ranks that have not failed. */
static inline int comm_message_exchange(dcp_comm *comm, const comm_message *send,
                                        const uint64_t *send_bytes, comm_message *receive,
                                        uint64_t *receive_bytes, dcp_error *err) {
    return comm_message_agree_exchange(comm, DCP_OK, COMM_READY_BYTES, send, send_bytes, receive,
                                       receive_bytes, err);
}

/* Collective, beginning with comm_agree_least of `status` and the n < 32 `values`.
 * The message of `root` becomes that of all ranks; the others' memory is reused. One all-reduce and
 * one broadcast, where it has at most COMM_READY_FOR_ALL bytes; of 256 bytes one all-reduce. */
int comm_message_agree_broadcast(dcp_comm *comm, int status, comm_message *message, int root,
                                 uint64_t *values, size_t n, dcp_error *err);

/* The same of ranks that have not failed, without values. */
static inline int comm_message_broadcast(dcp_comm *comm, comm_message *message, int root,
                                         dcp_error *err) {
    return comm_message_agree_broadcast(comm, DCP_OK, message, root, NULL, 0, err);
}
