/* Messages of any size between ranks, and the exchanges that are made of them. */
#pragma once

#include <stddef.h>

#include "comm/comm.h"

struct comm_vote;

/* Memory that usually suffices for what comes from all ranks, and from one rank to all, such as
 * tables. It is allocated before the sizes are known, and touched only as far as it is needed. */
#define COMM_READY_BYTES ((uint64_t)1 << 20)
#define COMM_READY_FOR_ALL ((uint64_t)4 << 20)

/* One message per destination rank, in rank order, appended piece by piece. */
typedef struct comm_message {
    unsigned char *data;
    uint64_t bytes, capacity;
} comm_message;

/* Makes room for `bytes` more at the end and returns it, valid until the next call. NULL: out of
 * memory. */
unsigned char *comm_message_append(comm_message *message, uint64_t bytes);

/* Collective, beginning with comm_agree of `status`. send->data holds send_bytes[r] bytes for each
 * rank r. `receive` is filled likewise, with receive_bytes[r] from each rank; its memory is reused.
 * A rank that has failed needs no messages. Allocates `ready` bytes, the same number on all
 * ranks, before it is known how much comes; two all-to-alls suffice if no message is longer than
 * its rank's share of them. */
int comm_message_agree_exchange(dcp_comm *comm, int status, uint64_t ready,
                                const comm_message *send, const uint64_t *send_bytes,
                                comm_message *receive, uint64_t *receive_bytes, dcp_error *err);

/* Does the same for ranks that have not failed. */
static inline int comm_message_exchange(dcp_comm *comm, const comm_message *send,
                                        const uint64_t *send_bytes, comm_message *receive,
                                        uint64_t *receive_bytes, dcp_error *err) {
    return comm_message_agree_exchange(comm, DCP_OK, COMM_READY_BYTES, send, send_bytes, receive,
                                       receive_bytes, err);
}

/* Collective, beginning with comm_agree of `status`; `v` is a vote of at most 31 words that goes
 * with it, or NULL. The message of `root` becomes that of all ranks; the others' memory is reused.
 * Costs one all-reduce and one broadcast if it has at most COMM_READY_FOR_ALL bytes, and one
 * all-reduce if it has at most 256 bytes. */
int comm_message_agree_broadcast(dcp_comm *comm, int status, comm_message *message, int root,
                                 struct comm_vote *v, dcp_error *err);

/* Does the same for ranks that have not failed, without a vote. */
static inline int comm_message_broadcast(dcp_comm *comm, comm_message *message, int root,
                                         dcp_error *err) {
    return comm_message_agree_broadcast(comm, DCP_OK, message, root, NULL, err);
}

/* Messages between ranks that know beforehand what they send each other: a short list of peers, and
 * the number of bytes. Over MPI, and over a caller's table with `exchange`, only the ranks that
 * have messages take part, and each waits only for its peers. Over a table without `exchange` all
 * ranks take part, also those without messages (comm_messages_are_collective).
 *
 * A list is sorted by peer; a peer is in it at most once, and this rank never. Both ranks of a
 * message list it, in the same of their exchanges. A list may have messages of no bytes, which are
 * not sent. */

/* An exchange. Its lists and their memory are the caller's, and may not be touched until its end.
 */
typedef struct comm_messages {
    dcp_comm *comm;
    const dcp_comm_message *send, *receive;
    size_t sends, receives;
    size_t sends_below, receives_below; /* messages to and from lower ranks */
    size_t sent, received;              /* messages of the current piece that were begun */
    uint64_t piece;
} comm_messages;

/* Returns true if all ranks of the communicator must take part in an exchange. */
int comm_messages_are_collective(const dcp_comm *comm);

/* Not collective: allocates the memory for an exchange whose messages together have at most so many
 * bytes. The communicator retains it. Without this call, a collective exchange may run short of
 * memory, which breaks the communicator. */
int comm_messages_reserve(dcp_comm *comm, uint64_t most_out, uint64_t most_in, dcp_error *err);

/* Begins an exchange; over MPI its messages are under way when this returns. A communicator has at
 * most one at a time; its collectives may be called meanwhile. */
void comm_messages_begin(comm_messages *m, dcp_comm *comm, const dcp_comm_message *send,
                         size_t sends, const dcp_comm_message *receive, size_t receives);
/* Ends it: what was sent may be changed, and what was to be received has arrived. Must be called
 * whatever failed since it began. */
int comm_messages_finish(comm_messages *m, dcp_error *err);

/* Begins and ends an exchange. */
int comm_messages_exchange(dcp_comm *comm, const dcp_comm_message *send, size_t sends,
                           const dcp_comm_message *receive, size_t receives, dcp_error *err);

/* Many all-to-alls, one after the other. Their sizes are agreed on together, so each round is a
 * single collective and allocates nothing. */

/* The most rounds at once. Limits the tables of sizes, however many ranks there are. */
#define COMM_ROUNDS_AT_ONCE 16

typedef struct comm_rounds {
    dcp_comm *comm;
    size_t n;
    uint64_t *send, *receive;   /* bytes to and from each rank: [round * ranks + rank] */
    uint64_t most_out, most_in; /* of all messages of a round together */
} comm_rounds;

/* Collective: makes tables for n rounds, with all sizes 0. To be freed in either case. */
int comm_rounds_make(comm_rounds *rounds, dcp_comm *comm, size_t n, dcp_error *err);

/* Collective, once `send` is filled in: fills in the rest. */
int comm_rounds_agree(comm_rounds *rounds, dcp_error *err);

/* Collective: `out` holds the messages to all ranks, in rank order without gaps; `in` is filled
 * likewise. */
int comm_rounds_run(const comm_rounds *rounds, size_t round, const void *out, void *in,
                    dcp_error *err);

/* Does the same in the other direction: `receive` bytes go out, `send` bytes come in. */
int comm_rounds_answer(const comm_rounds *rounds, size_t round, const void *out, void *in,
                       dcp_error *err);

void comm_rounds_free(comm_rounds *rounds);
