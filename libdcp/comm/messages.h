/* Messages of any size between ranks, and the exchanges that are made of them. */
#pragma once

#include <stddef.h>

#include "comm/comm.h"

struct comm_vote;

/* Messages of any size: between all pairs of ranks, and from one to all. */

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

/* Collective, beginning with comm_agree of `status`; `v` is a vote of at most 31 words that goes
 * with it, or NULL. The message of `root` becomes that of all ranks; the others' memory is reused.
 * One all-reduce and one broadcast, where it has at most COMM_READY_FOR_ALL bytes; of 256 bytes one
 * all-reduce. */
int comm_message_agree_broadcast(dcp_comm *comm, int status, comm_message *message, int root,
                                 struct comm_vote *v, dcp_error *err);

/* Does the same for ranks that have not failed, without a vote. */
static inline int comm_message_broadcast(dcp_comm *comm, comm_message *message, int root,
                                         dcp_error *err) {
    return comm_message_agree_broadcast(comm, DCP_OK, message, root, NULL, err);
}

/* Messages between ranks that know of each other what they send: a short list of peers, and how
 * many bytes. Over MPI, and over a caller's table with `exchange`, only the ranks that talk take
 * part, and they wait for their peers alone. Over a table without it all ranks take part, those
 * without messages as well (comm_messages_are_collective).
 *
 * A list is sorted by peer; a peer is in it at most once, and this rank is not. Both ranks of a
 * message list it, in the same of their exchanges. Messages of no bytes may be listed; they do not
 * travel. */

/* An exchange: its lists and their memory are the caller's, and may not be touched until its end.
 */
typedef struct comm_messages {
    dcp_comm *comm;
    const dcp_comm_message *send, *receive;
    size_t sends, receives;
    size_t sends_below, receives_below; /* of ranks below this one */
    size_t sent, received;              /* of a piece, what has been begun */
    uint64_t piece;
} comm_messages;

/* Whether an exchange on the communicator needs all its ranks. */
int comm_messages_are_collective(const dcp_comm *comm);

/* Not collective: takes the memory that an exchange needs of which all messages together have so
 * many bytes at most; it stays with the communicator. Without it, an exchange that needs memory
 * (where it is collective) may find that it is short, which breaks the communicator. */
int comm_messages_reserve(dcp_comm *comm, uint64_t most_out, uint64_t most_in, dcp_error *err);

/* Begins an exchange: over MPI messages are under way then. At most one is on a communicator; its
 * collectives may be called beside it. */
void comm_messages_begin(comm_messages *m, dcp_comm *comm, const dcp_comm_message *send,
                         size_t sends, const dcp_comm_message *receive, size_t receives);
/* Ends it: what was sent may be changed, and what was to be received has come. To be called in
 * either case, whatever failed since it began. */
int comm_messages_finish(comm_messages *m, dcp_error *err);

/* Both. */
int comm_messages_exchange(dcp_comm *comm, const dcp_comm_message *send, size_t sends,
                           const dcp_comm_message *receive, size_t receives, dcp_error *err);

/* Many all-to-alls one after the other. Their sizes are agreed on at once, so that a round is a
 * single collective and allocates nothing. */

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
