/* Over MPI a rank begins messages in the order of distance: first those to the next rank, and from
 * the one before, then to the one after that, and so on; some at a time. A message of the least
 * distance at which any rank still waits has been begun by both of its ranks, so nobody waits for
 * ever. Large messages go in pieces, first the first pieces of all. */
#include "comm/messages.h"

#include <stdlib.h>
#include <string.h>

#include "comm/host.h"
#include "core/bytes.h"
#include "core/fail.h"

#ifndef PIECE_BYTES
#define PIECE_BYTES ((uint64_t)64 << 20) /* as in pairs.c */
#endif

int comm_messages_are_collective(const dcp_comm *comm) {
    return comm->size > 1 && !comm->mpi && !comm->ops.exchange;
}

/* How many of a list are for ranks below `rank`. */
static size_t count_below(const dcp_comm_message *list, size_t n, int rank) {
    size_t below = 0;
    while (below < n && list[below].peer < rank) below++;
    return below;
}

static const dcp_comm_message *next_send(const comm_messages *m, int *distance) {
    const int own = m->comm->rank, size = m->comm->size;
    if (m->sent == m->sends) return NULL;
    const dcp_comm_message *message = &m->send[(m->sends_below + m->sent) % m->sends];
    *distance = (message->peer - own + size) % size;
    return message;
}

static const dcp_comm_message *next_receive(const comm_messages *m, int *distance) {
    const int own = m->comm->rank, size = m->comm->size;
    if (m->received == m->receives) return NULL;
    const size_t i = (m->receives_below + m->receives - 1 - m->received) % m->receives;
    *distance = (own - m->receive[i].peer + size) % size;
    return &m->receive[i];
}

/* Where the message's piece begins; 0 bytes: it has none. */
static unsigned char *piece_of(const comm_messages *m, const dcp_comm_message *message,
                               uint64_t *bytes) {
    const uint64_t begin = m->piece * PIECE_BYTES;
    *bytes = message->bytes > begin ? core_min_u64(message->bytes - begin, PIECE_BYTES) : 0;
    return (unsigned char *)message->data + begin;
}

/* Begins as many as there is room for. */
static void begin_some(comm_messages *m, comm_batch *b) {
    while (b->n < 2 * COMM_BATCH_PEERS && !b->code) {
        int up = 0, down = 0;
        uint64_t bytes;
        const dcp_comm_message *to = next_send(m, &up), *from = next_receive(m, &down);
        if (!to && !from) return;
        if (to && (!from || up < down)) {
            unsigned char *at = piece_of(m, to, &bytes);
            if (bytes) comm_batch_send(b, at, bytes, to->peer);
            m->sent++;
        } else {
            unsigned char *at = piece_of(m, from, &bytes);
            if (bytes) comm_batch_receive(b, at, bytes, from->peer);
            m->received++;
        }
    }
}

static uint64_t largest(const dcp_comm_message *list, size_t n) {
    uint64_t most = 0;
    for (size_t i = 0; i < n; i++)
        if (list[i].bytes > most) most = list[i].bytes;
    return most;
}

/* Waits for what is under way, and goes on with the rest. */
static int finish_over_mpi(comm_messages *m) {
    comm_batch *b = &m->comm->mpi->messages;
    uint64_t most = largest(m->send, m->sends), in = largest(m->receive, m->receives);
    if (in > most) most = in;
    int failed = comm_batch_hear(b->pairs);
    for (;;) {
        if (b->n || b->code) failed = comm_batch_finish(b);
        if (failed) return failed;
        if (m->sent == m->sends && m->received == m->receives) {
            m->sent = m->received = 0;
            if (++m->piece * PIECE_BYTES >= most) return 0;
        }
        begin_some(m, b);
    }
}

static uint64_t all_bytes_of(const dcp_comm_message *list, size_t n) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < n; i++) bytes += list[i].bytes;
    return bytes;
}

static int grow(unsigned char **memory, uint64_t *have, uint64_t need) {
    if (*memory && need <= *have) return 0;
    unsigned char *more = malloc(need + 1);
    if (!more) return -1;
    free(*memory);
    *memory = more;
    *have = need;
    return 0;
}

int comm_messages_reserve(dcp_comm *comm, uint64_t most_out, uint64_t most_in, dcp_error *err) {
    comm_packing *p = &comm->packing;
    const uint64_t lists = 2 * (uint64_t)comm->size * sizeof *p->bytes;
    if (!comm_messages_are_collective(comm)) return DCP_OK;
    if (!p->bytes) p->bytes = malloc(lists);
    if (p->bytes && !grow(&p->send, &p->most_out, most_out) &&
        !grow(&p->receive, &p->most_in, most_in))
        return DCP_OK;
    return core_fail_memory(err, lists + most_out + most_in);
}

/* All ranks take part. */
static int finish_by_alltoall(const comm_messages *m, dcp_error *err) {
    dcp_comm *comm = m->comm;
    comm_packing *p = &comm->packing;
    const size_t ranks = (size_t)comm->size;
    if (comm_messages_reserve(comm, all_bytes_of(m->send, m->sends),
                              all_bytes_of(m->receive, m->receives), err))
        return comm_check_code(comm, "exchange of messages, for lack of memory,", DCP_ERR_NO_MEMORY,
                               err);
    memset(p->bytes, 0, 2 * ranks * sizeof *p->bytes);
    unsigned char *at = p->send;
    for (size_t i = 0; i < m->sends; i++) {
        p->bytes[m->send[i].peer] = m->send[i].bytes;
        if (m->send[i].bytes) memcpy(at, m->send[i].data, m->send[i].bytes);
        at += m->send[i].bytes;
    }
    for (size_t i = 0; i < m->receives; i++)
        p->bytes[ranks + (size_t)m->receive[i].peer] = m->receive[i].bytes;
    int status = comm_alltoall(comm, p->send, p->bytes, p->receive, p->bytes + ranks, err);
    at = p->receive;
    for (size_t i = 0; i < m->receives && !status; at += m->receive[i++].bytes)
        if (m->receive[i].bytes) memcpy(m->receive[i].data, at, m->receive[i].bytes);
    return status;
}

void comm_messages_begin(comm_messages *m, dcp_comm *comm, const dcp_comm_message *send,
                         size_t sends, const dcp_comm_message *receive, size_t receives) {
    *m = (comm_messages){
        .comm = comm, .send = send, .receive = receive, .sends = sends, .receives = receives};
    if (!comm->mpi) return;
    m->sends_below = count_below(send, sends, comm->rank);
    m->receives_below = count_below(receive, receives, comm->rank);
    comm_batch *b = &comm->mpi->messages;
    *b = (comm_batch){.pairs = &comm->mpi->pairs, .is_apart = 1};
    if (!comm_is_broken(comm)) begin_some(m, b);
}

int comm_messages_finish(comm_messages *m, dcp_error *err) {
    dcp_comm *comm = m->comm;
    const char *what = "exchange of messages";
    int code = 0;
    if (comm_messages_are_collective(comm)) return finish_by_alltoall(m, err);
    if (!comm->mpi) {
        if (comm_is_broken(comm)) return comm_fail_broken(comm, what, err);
        if (m->sends || m->receives)
            code = comm->ops.exchange(comm->ctx, m->send, m->sends, m->receive, m->receives);
        return comm_check_code(comm, what, code, err);
    }
    if (m->sends || m->receives) code = finish_over_mpi(m);
    if (code || comm_is_broken(comm)) return comm_fail_broken(comm, what, err);
    return DCP_OK;
}

int comm_messages_exchange(dcp_comm *comm, const dcp_comm_message *send, size_t sends,
                           const dcp_comm_message *receive, size_t receives, dcp_error *err) {
    comm_messages m;
    comm_messages_begin(&m, comm, send, sends, receive, receives);
    return comm_messages_finish(&m, err);
}
