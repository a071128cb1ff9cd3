/* Messages between ranks that know of each other what they send: a short list of peers, and how
 * many bytes. Over MPI, and over a caller's table with `exchange`, only the ranks that talk take
 * part, and they wait for their peers alone. Over a table without it all ranks take part, those
 * without messages as well (comm_messages_are_collective).
 *
 * A list is sorted by peer; a peer is in it at most once, and this rank is not. Both ranks of a
 * message list it, in the same of their exchanges. Messages of no bytes may be listed; they do not
 * travel. */
#pragma once

#include "comm/comm.h"

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
