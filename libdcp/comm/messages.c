/* Lengths travel first, then the messages. Each rank has already allocated some memory, and the
 * lengths say whether it suffices everywhere. If it does not, the ranks allocate more. No rank
 * sends before all ranks have agreed that each of them could allocate enough. */
#include "comm/messages.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "comm/host.h"
#include "comm/vote.h"
#include "core/bytes.h"
#include "core/fail.h"

/* A rank sends each length as the number of bytes. It adds IS_LONG to all its lengths if any of its
 * messages exceeds one rank's share of the memory that is already allocated. A rank that has failed
 * sends HAS_FAILED instead of each length. */
#define IS_LONG (1ULL << 63)
#define HAS_FAILED UINT64_MAX

unsigned char *comm_buffer_append(comm_buffer *message, uint64_t bytes) {
    uint64_t needed = message->bytes + bytes;
    if (needed > message->capacity || !message->data) {
        uint64_t capacity = needed + needed / 2 + 4096;
        unsigned char *data = realloc(message->data, capacity);
        if (!data) return NULL;
        message->data = data;
        message->capacity = capacity;
    }
    unsigned char *at = message->data + message->bytes;
    message->bytes = needed;
    return at;
}

/* Makes room for `bytes` in total. */
static int grow_to(comm_buffer *message, uint64_t bytes, dcp_error *err) {
    if (message->data && bytes <= message->capacity) return DCP_OK;
    unsigned char *data = realloc(message->data, bytes);
    if (!data) return core_fail_memory(err, bytes);
    message->data = data;
    message->capacity = bytes;
    return DCP_OK;
}

/* Releases what was allocated for a longer message. */
static void give_back(comm_buffer *message) {
    unsigned char *data = realloc(message->data, message->bytes + 1);
    if (!data) return;
    message->data = data;
    message->capacity = message->bytes + 1;
}

/* Collective: receive_bytes[r] becomes the number of bytes that rank r sends to this one. *is_ready
 * becomes 1 if the memory that is already allocated suffices on all ranks. */
static int exchange_lengths(dcp_comm *comm, int status, uint64_t ready, const uint64_t *send_bytes,
                            uint64_t *receive_bytes, bool *is_ready, dcp_error *err) {
    const size_t ranks = (size_t)comm->size;
    const uint64_t part = ready / ranks;
    uint64_t *out = comm->numbers, *in = out + ranks, mark = 0;
    for (size_t r = 0; r < ranks && !status; r++)
        if (send_bytes[r] > part) mark = IS_LONG;
    for (size_t r = 0; r < ranks; r++) out[r] = status ? HAS_FAILED : send_bytes[r] | mark;
    int comm_status = comm_alltoall(comm, out, comm->eights, in, comm->eights, err);
    if (comm_status) return comm_status;
    for (size_t r = 0; r < ranks; r++)
        if (in[r] == HAS_FAILED) return comm_agree(comm, status, err);
    *is_ready = true;
    for (size_t r = 0; r < ranks; r++) {
        *is_ready &= !(in[r] & IS_LONG);
        receive_bytes[r] = in[r] & ~IS_LONG;
    }
    return DCP_OK;
}

int comm_buffer_agree_exchange(dcp_comm *comm, int status, uint64_t ready, const comm_buffer *send,
                               const uint64_t *send_bytes, comm_buffer *receive,
                               uint64_t *receive_bytes, dcp_error *err) {
    uint64_t total = 0;
    bool is_ready = false;
    receive->bytes = 0;
    if (!status) status = grow_to(receive, ready, err);
    status = exchange_lengths(comm, status, ready, send_bytes, receive_bytes, &is_ready, err);
    if (status) return status;
    for (int r = 0; r < comm->size; r++) total += receive_bytes[r];
    if (!is_ready) status = comm_agree(comm, grow_to(receive, total, err), err);
    if (status) return status;
    receive->bytes = total;
    give_back(receive);
    return comm_alltoall(comm, send->data, send_bytes, receive->data, receive_bytes, err);
}

/* A message of at most this many words travels with the agreement on its length. */
enum { SHORT_WORDS = 32 };

static bool is_short(uint64_t bytes) { return bytes <= 8 * SHORT_WORDS; }

int comm_buffer_agree_broadcast(dcp_comm *comm, int status, comm_buffer *message, int root,
                                comm_vote *v, dcp_error *err) {
    const bool is_root = comm->rank == root;
    comm_vote own = {0};
    uint64_t text[SHORT_WORDS] = {0}, bytes = message->bytes;
    if (!v) v = &own;
    comm_vote_from(v, is_root, &bytes, 1);
    comm_vote_from(v, is_root, text, SHORT_WORDS);
    if (is_root && !status && is_short(bytes) && bytes) memcpy(text, message->data, bytes);
    if (!is_root && !status) status = grow_to(message, COMM_READY_FOR_ALL, err);
    status = comm_vote_run(comm, v, status, err);
    if (status) return status;
    if (bytes > COMM_READY_FOR_ALL)
        status = comm_agree(comm, is_root ? DCP_OK : grow_to(message, bytes, err), err);
    if (status) return status;
    if (!is_root) {
        message->bytes = bytes;
        give_back(message);
    }
    if (!is_short(bytes)) return comm_broadcast(comm, message->data, bytes, root, err);
    if (!is_root) memcpy(message->data, text, bytes);
    return DCP_OK;
}

/* Over MPI a rank begins its messages in the order of distance: first those to the next rank and
 * from the previous one, then those at distance 2, and so on, a limited number at a time. No rank
 * waits for ever: at the smallest distance at which a rank still waits for a message, both ranks of
 * that message have begun it. Large messages go in pieces: the first pieces of all messages, then
 * the second pieces, and so on. */

#ifndef PIECE_BYTES
#define PIECE_BYTES ((uint64_t)64 << 20) /* as in pairs.c */
#endif

bool comm_exchange_is_collective(const dcp_comm *comm) {
    return comm->size > 1 && !comm->mpi && !comm->ops.exchange;
}

/* Returns how many messages of a list are to or from ranks below `rank`. */
static size_t count_below(const dcp_comm_message *list, size_t n, int rank) {
    size_t below = 0;
    while (below < n && list[below].peer < rank) below++;
    assert(below == n || list[below].peer != rank);
    return below;
}

static const dcp_comm_message *next_send(const comm_exchange *m, int *distance) {
    const int own = m->comm->rank, size = m->comm->size;
    if (m->sent == m->sends) return NULL;
    const dcp_comm_message *message = &m->send[(m->sends_below + m->sent) % m->sends];
    *distance = (message->peer - own + size) % size;
    return message;
}

static const dcp_comm_message *next_receive(const comm_exchange *m, int *distance) {
    const int own = m->comm->rank, size = m->comm->size;
    if (m->received == m->receives) return NULL;
    const size_t i = (m->receives_below + m->receives - 1 - m->received) % m->receives;
    *distance = (own - m->receive[i].peer + size) % size;
    return &m->receive[i];
}

/* Returns where piece number m->piece of the message begins. *bytes becomes the piece's size, or 0
 * if the message has fewer pieces. */
static unsigned char *piece_of(const comm_exchange *m, const dcp_comm_message *message,
                               uint64_t *bytes) {
    const uint64_t begin = m->piece * PIECE_BYTES;
    *bytes = message->bytes > begin ? core_min_u64(message->bytes - begin, PIECE_BYTES) : 0;
    return (unsigned char *)message->data + begin;
}

/* Begins as many messages as the batch has room for. */
static void begin_some(comm_exchange *m, comm_batch *b) {
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

/* Waits for the messages under way, and continues with the rest. */
static int finish_over_mpi(comm_exchange *m) {
    comm_batch *b = &m->comm->mpi->messages;
    uint64_t most = largest(m->send, m->sends), in = largest(m->receive, m->receives);
    if (in > most) most = in;
    int failed = comm_batch_receive_failures(b->pairs);
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

int comm_exchange_reserve(dcp_comm *comm, uint64_t most_out, uint64_t most_in, dcp_error *err) {
    comm_packing *p = &comm->packing;
    const uint64_t lists = 2 * (uint64_t)comm->size * sizeof *p->bytes;
    if (!comm_exchange_is_collective(comm)) return DCP_OK;
    if (!p->bytes) p->bytes = malloc(lists);
    if (p->bytes && !grow(&p->send, &p->most_out, most_out) &&
        !grow(&p->receive, &p->most_in, most_in))
        return DCP_OK;
    return core_fail_memory(err, lists + most_out + most_in);
}

/* Collective: all ranks of the communicator take part. */
static int finish_by_alltoall(const comm_exchange *m, dcp_error *err) {
    dcp_comm *comm = m->comm;
    comm_packing *p = &comm->packing;
    const size_t ranks = (size_t)comm->size;
    if (comm_exchange_reserve(comm, all_bytes_of(m->send, m->sends),
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

void comm_exchange_begin(comm_exchange *m, dcp_comm *comm, const dcp_comm_message *send,
                         size_t sends, const dcp_comm_message *receive, size_t receives) {
    *m = (comm_exchange){
        .comm = comm, .send = send, .receive = receive, .sends = sends, .receives = receives};
    if (!comm->mpi) return;
    m->sends_below = count_below(send, sends, comm->rank);
    m->receives_below = count_below(receive, receives, comm->rank);
    comm_batch *b = &comm->mpi->messages;
    *b = (comm_batch){.pairs = &comm->mpi->pairs, .has_own_tag = true};
    if (!comm_is_broken(comm)) begin_some(m, b);
}

int comm_exchange_finish(comm_exchange *m, dcp_error *err) {
    dcp_comm *comm = m->comm;
    const char *what = "exchange of messages";
    int code = 0;
    if (comm_exchange_is_collective(comm)) return finish_by_alltoall(m, err);
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

int comm_exchange_run(dcp_comm *comm, const dcp_comm_message *send, size_t sends,
                      const dcp_comm_message *receive, size_t receives, dcp_error *err) {
    comm_exchange m;
    comm_exchange_begin(&m, comm, send, sends, receive, receives);
    return comm_exchange_finish(&m, err);
}

/* The sizes of all rounds travel in one message per rank. */

int comm_rounds_make(comm_rounds *rounds, dcp_comm *comm, size_t n, dcp_error *err) {
    size_t sizes = n * (size_t)comm->size;
    *rounds = (comm_rounds){.comm = comm, .n = n};
    rounds->send = calloc(sizes + 1, sizeof *rounds->send);
    rounds->receive = calloc(sizes + 1, sizeof *rounds->receive);
    bool ok = rounds->send && rounds->receive;
    return comm_agree(comm, ok ? DCP_OK : core_fail_memory(err, 16 * sizes), err);
}

/* Copies from [a * b_count + b] to [b * a_count + a]. */
static void transpose(const uint64_t *from, size_t a_count, size_t b_count, uint64_t *to) {
    for (size_t a = 0; a < a_count; a++)
        for (size_t b = 0; b < b_count; b++) to[b * a_count + a] = from[a * b_count + b];
}

static int exchange_sizes(const comm_rounds *r, dcp_error *err) {
    size_t ranks = (size_t)r->comm->size, sizes = r->n * ranks;
    uint64_t *memory = core_array(2 * sizes + ranks, sizeof *memory);
    int status = comm_agree(r->comm, memory ? DCP_OK : core_fail_memory(err, 16 * sizes), err);
    if (!status) {
        uint64_t *out = memory, *in = out + sizes, *bytes = in + sizes;
        for (size_t rank = 0; rank < ranks; rank++) bytes[rank] = r->n * sizeof *out;
        transpose(r->send, r->n, ranks, out);
        status = comm_alltoall(r->comm, out, bytes, in, bytes, err);
        if (!status) transpose(in, ranks, r->n, r->receive);
    }
    free(memory);
    return status;
}

static uint64_t largest_round(const comm_rounds *r, const uint64_t *sizes) {
    uint64_t most = 0;
    for (size_t i = 0; i < r->n; i++) {
        uint64_t bytes = 0;
        for (int rank = 0; rank < r->comm->size; rank++)
            bytes += sizes[i * (size_t)r->comm->size + (size_t)rank];
        if (bytes > most) most = bytes;
    }
    return most;
}

int comm_rounds_agree(comm_rounds *r, dcp_error *err) {
    int status = exchange_sizes(r, err);
    if (status) return status;
    r->most_out = largest_round(r, r->send);
    r->most_in = largest_round(r, r->receive);
    return DCP_OK;
}

int comm_rounds_run(const comm_rounds *r, size_t round, const void *out, void *in, dcp_error *err) {
    size_t at = round * (size_t)r->comm->size;
    return comm_alltoall(r->comm, out, r->send + at, in, r->receive + at, err);
}

int comm_rounds_answer(const comm_rounds *r, size_t round, const void *out, void *in,
                       dcp_error *err) {
    size_t at = round * (size_t)r->comm->size;
    return comm_alltoall(r->comm, out, r->receive + at, in, r->send + at, err);
}

void comm_rounds_free(comm_rounds *r) {
    free(r->send);
    free(r->receive);
    *r = (comm_rounds){0};
}
