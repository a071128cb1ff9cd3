/* Messages of any size between ranks, and the exchanges that are made of them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "comm/comm.h"

struct comm_vote;

/* Sizes of memory that usually suffice: COMM_READY_BYTES for the messages from all ranks to one,
 * COMM_READY_FOR_ALL for a message from one rank to all, such as tables. The memory is allocated
 * before the messages' sizes are known, and touched only as far as it is needed. */
#define COMM_READY_BYTES ((uint64_t)1 << 20)
#define COMM_READY_FOR_ALL ((uint64_t)4 << 20)

/* A buffer that grows as pieces are appended. Holds a single message, or the messages to or from
 * all ranks, in rank order without gaps. */
typedef struct comm_buffer {
    unsigned char *data;
    uint64_t bytes, capacity;
} comm_buffer;

/* Makes room for `bytes` more bytes at the end, and returns the address of this room, which is
 * valid until the next call. NULL: out of memory. */
unsigned char *comm_buffer_append(comm_buffer *message, uint64_t bytes);

/* Collective. If a rank passes a failure as `status`, all ranks return what comm_agree of `status`
 * returns. send->data holds send_bytes[r] bytes for each rank r. `receive` is filled likewise, with
 * receive_bytes[r] from each rank; its memory is reused. A rank that has failed need not fill in
 * `send` and `send_bytes`. Allocates `ready` bytes, the same number on all ranks, before the sizes
 * of the messages are known. Two all-to-alls suffice if no message is longer than ready / ranks. */
int comm_buffer_agree_exchange(dcp_comm *comm, int status, uint64_t ready, const comm_buffer *send,
                               const uint64_t *send_bytes, comm_buffer *receive,
                               uint64_t *receive_bytes, dcp_error *err);

/* Like comm_buffer_agree_exchange, for ranks that have not failed. */
static inline int comm_buffer_exchange(dcp_comm *comm, const comm_buffer *send,
                                       const uint64_t *send_bytes, comm_buffer *receive,
                                       uint64_t *receive_bytes, dcp_error *err) {
    return comm_buffer_agree_exchange(comm, DCP_OK, COMM_READY_BYTES, send, send_bytes, receive,
                                      receive_bytes, err);
}

/* Collective, beginning with comm_agree of `status`. `v` is NULL, or a vote of at most 31 words,
 * which takes part in the same all-reduce. Every rank's `message` becomes the message of `root`;
 * the other ranks' memory is reused. Costs one all-reduce and one broadcast if the message has at
 * most COMM_READY_FOR_ALL bytes, and only the all-reduce if it has at most 256 bytes. */
int comm_buffer_agree_broadcast(dcp_comm *comm, int status, comm_buffer *message, int root,
                                struct comm_vote *v, dcp_error *err);

/* Like comm_buffer_agree_broadcast, for ranks that have not failed, and without a vote. */
static inline int comm_buffer_broadcast(dcp_comm *comm, comm_buffer *message, int root,
                                        dcp_error *err) {
    return comm_buffer_agree_broadcast(comm, DCP_OK, message, root, NULL, err);
}

/* Messages between ranks that know beforehand what they send each other: a short list of peers, and
 * the number of bytes. Over MPI, and over a caller's table with `exchange`, only the ranks that
 * have messages take part, and each waits only for its peers. Over a table without `exchange` all
 * ranks take part, even those without messages (comm_exchange_is_collective).
 *
 * A list is sorted by peer, contains each peer at most once, and never contains this rank. The
 * sender and the receiver of a message both list it, in corresponding exchanges. A list may have
 * messages of zero bytes, which are not sent. */

/* An exchange. Its lists and their memory are the caller's, and must not be changed until the
 * exchange ends. */
typedef struct comm_exchange {
    dcp_comm *comm;
    const dcp_comm_message *send, *receive;
    size_t sends, receives;
    size_t sends_below, receives_below; /* how many messages go to, and come from, lower ranks */
    size_t sent, received; /* the number of messages of which piece number `piece` has been begun */
    uint64_t piece; /* large messages go in pieces: the first pieces of all messages before the
                       second ones */
} comm_exchange;

/* Returns true if all ranks of the communicator must take part in an exchange. */
bool comm_exchange_is_collective(const dcp_comm *comm);

/* Not collective: allocates the memory for an exchange in which this rank sends at most most_out
 * bytes and receives at most most_in bytes. The communicator retains it. Without this call, a
 * collective exchange may run short of memory, which breaks the communicator. */
int comm_exchange_reserve(dcp_comm *comm, uint64_t most_out, uint64_t most_in, dcp_error *err);

/* Begins an exchange; over MPI its messages are under way when this returns. A communicator has at
 * most one exchange at a time; its collectives may be called meanwhile. */
void comm_exchange_begin(comm_exchange *m, dcp_comm *comm, const dcp_comm_message *send,
                         size_t sends, const dcp_comm_message *receive, size_t receives);
/* Ends an exchange. Afterwards all messages to this rank have arrived, and the memory of the
 * messages that it sent may be changed. Must be called after every comm_exchange_begin, whatever
 * has failed meanwhile. */
int comm_exchange_finish(comm_exchange *m, dcp_error *err);

/* Begins and ends an exchange. */
int comm_exchange_run(dcp_comm *comm, const dcp_comm_message *send, size_t sends,
                      const dcp_comm_message *receive, size_t receives, dcp_error *err);

/* Many all-to-alls, one after the other. Their sizes are agreed on together, so each round is a
 * single collective and allocates nothing. */

/* The largest number of rounds. Limits the memory per rank for the tables of sizes. */
#define COMM_ROUNDS_AT_ONCE 16

typedef struct comm_rounds {
    dcp_comm *comm;
    size_t n;
    uint64_t *send, *receive;   /* bytes to and from each rank: [round * ranks + rank] */
    uint64_t most_out, most_in; /* the most bytes of one round, out and in */
} comm_rounds;

/* Collective: makes tables for n rounds, with all sizes 0. Call comm_rounds_free even if this
 * fails. */
int comm_rounds_make(comm_rounds *rounds, dcp_comm *comm, size_t n, dcp_error *err);

/* Collective, once `send` is filled in: fills in the rest. */
int comm_rounds_agree(comm_rounds *rounds, dcp_error *err);

/* Collective: `out` holds the messages to all ranks, in rank order without gaps; `in` is filled
 * likewise. */
int comm_rounds_run(const comm_rounds *rounds, size_t round, const void *out, void *in,
                    dcp_error *err);

/* Like comm_rounds_run in the other direction: the sizes in `receive` go out, those in `send` come
 * in. */
int comm_rounds_answer(const comm_rounds *rounds, size_t round, const void *out, void *in,
                       dcp_error *err);

void comm_rounds_free(comm_rounds *rounds);
