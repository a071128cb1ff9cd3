/* Window by window, one message from each rank to each aggregator. A fragment's head says where it
 * lies in the aggregator's domain, and how long it is (u32 each).
 *
 * To the file: heads with their bytes behind them go to the aggregators, who place them in their
 * domains and write those. From it: heads alone go there, as questions; aggregators read what is
 * asked for, and answer with the bytes, in the questions' order. The next window is read while this
 * one is answered.
 *
 * The sizes of all messages of some windows are known before the first one, so a message costs one
 * collective. A rank that failed goes on exchanging up to the last of these, so that nobody waits
 * for it; what it sends then is never published, and what it takes is never proven. */
#include "move/exchange_messages.h"

#include <stdlib.h>
#include <string.h>

#include "comm/rounds.h"
#include "core/bytes.h"
#include "core/fail.h"
#include "move/transfer.h"

#define HEAD_BYTES 8

enum { COUNT_WALK, SEND_WALK, TAKE_WALK };

/* A window of which this rank's domain is being read. */
typedef struct asked_window {
    size_t round;
    uint64_t window;
    unsigned slot;
    unsigned char *heads; /* from all ranks */
} asked_window;

typedef struct message_exchange {
    move_exchange *x;
    dcp_comm *comm;
    int to_file;
    comm_rounds there, back; /* to the aggregators; from files: from them */
    unsigned char *out, *in; /* messages of a round */
    unsigned char *at;       /* where the walk stands in them */
    uint64_t domain_start;   /* of the domain that is walked */
    asked_window asked[2];
    unsigned char *own; /* to the file: this rank's domain, of which `pages` are in use */
    int is_own;         /* it is walked */
    unsigned char pages[MOVE_DOMAIN_PAGES];
} message_exchange;

/* What a message to an aggregator, and the one back, take. */
typedef struct message_sizes {
    uint64_t *there, *back; /* back: NULL to the file, where the bytes go there */
} message_sizes;

static int count_fragment(void *ctx, const move_fragment *f) {
    const message_sizes *sizes = ctx;
    *sizes->there += HEAD_BYTES;
    *(sizes->back ? sizes->back : sizes->there) += f->bytes;
    return 0;
}

/* What a rank sends to its own domain to be written takes no message. */
static int agree_on_sizes(message_exchange *m, const uint64_t *list, size_t n, dcp_error *err) {
    int status = comm_rounds_make(&m->there, m->comm, n, err);
    if (!status && !m->to_file) status = comm_rounds_make(&m->back, m->comm, n, err);
    if (status) return status;
    size_t ranks = (size_t)m->comm->size;
    for (size_t i = 0; i < n; i++)
        for (size_t r = 0; r < ranks; r++) {
            message_sizes sizes = {&m->there.send[i * ranks + r],
                                   m->to_file ? NULL : &m->back.send[i * ranks + r]};
            if (!m->to_file || (int)r != m->comm->rank)
                move_exchange_walk(m->x, COUNT_WALK, list[i], (int)r, count_fragment, &sizes);
        }
    status = comm_rounds_agree(&m->there, err);
    return status || m->to_file ? status : comm_rounds_agree(&m->back, err);
}

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* Here all ranks also end where one has failed. */
static int allocate_messages(message_exchange *m, dcp_error *err) {
    uint64_t out = larger(m->there.most_out, m->back.most_in);
    uint64_t in = m->to_file ? m->there.most_in : m->back.most_out;
    uint64_t heads = m->to_file ? 0 : m->there.most_in;
    m->out = malloc(out + 1);
    m->in = malloc(in + 1);
    m->asked[0].heads = malloc(heads + 1);
    m->asked[1].heads = malloc(heads + 1);
    int ok = m->out && m->in && m->asked[0].heads && m->asked[1].heads;
    int status = m->x->status;
    if (status && err) *err = m->x->error;
    if (!ok && !status) status = core_fail_memory(err, out + in + 2 * heads);
    return comm_agree(m->comm, status, err);
}

static void free_messages(message_exchange *m) {
    comm_rounds_free(&m->there);
    comm_rounds_free(&m->back);
    free(m->out);
    free(m->in);
    free(m->asked[0].heads);
    free(m->asked[1].heads);
    m->out = m->in = m->asked[0].heads = m->asked[1].heads = NULL;
}

/* Where bytes of the own domain are placed. Pages get their zeros when the first fragment meets
 * them. */
static unsigned char *own_bytes(message_exchange *m, uint64_t offset, uint64_t bytes) {
    for (uint64_t page = offset / PAGE_BYTES; page <= (offset + bytes - 1) / PAGE_BYTES; page++)
        if (!m->pages[page]) {
            m->pages[page] = 1;
            memset(m->own + page * PAGE_BYTES, 0, PAGE_BYTES);
        }
    return m->own + offset;
}

static int pack_fragment(void *ctx, const move_fragment *f) {
    message_exchange *m = ctx;
    uint64_t offset = f->file_offset - m->domain_start;
    if (m->to_file && m->is_own) {
        move_exchange_fetch(m->x, f, own_bytes(m, offset, f->bytes));
        return 0;
    }
    core_put_u32(m->at, (uint32_t)offset);
    core_put_u32(m->at + 4, (uint32_t)f->bytes);
    m->at += HEAD_BYTES;
    if (m->to_file) {
        move_exchange_fetch(m->x, f, m->at);
        m->at += f->bytes;
    }
    return 0;
}

/* Messages of the round to all aggregators, and theirs to this one. */
static int send_there(message_exchange *m, size_t round, uint64_t window, unsigned char *in,
                      dcp_error *err) {
    m->at = m->out;
    for (int r = 0; r < m->comm->size; r++) {
        m->domain_start = move_windows_domain(&m->x->windows, window, r);
        m->is_own = r == m->comm->rank;
        move_exchange_walk(m->x, SEND_WALK, window, r, pack_fragment, m);
    }
    return comm_rounds_run(&m->there, round, m->out, in, err);
}

/* Bytes that `rank` sent to this aggregator in the round. */
static uint64_t bytes_from(const message_exchange *m, size_t round, int rank) {
    return m->there.receive[round * (size_t)m->comm->size + (size_t)rank];
}

static uint64_t bytes_from_all(const message_exchange *m, size_t round) {
    uint64_t bytes = 0;
    for (int r = 0; r < m->comm->size; r++) bytes += bytes_from(m, round, r);
    return bytes;
}

static void place_fragments(message_exchange *m, uint64_t message_bytes) {
    const unsigned char *at = m->in, *end = at + message_bytes;
    while (at < end) {
        uint32_t offset = core_get_u32(at), bytes = core_get_u32(at + 4);
        memcpy(own_bytes(m, offset, bytes), at + HEAD_BYTES, bytes);
        at += HEAD_BYTES + (uint64_t)bytes;
    }
}

static int write_window(message_exchange *m, size_t round, uint64_t window, dcp_error *err) {
    unsigned slot = io_queue_next(m->x->queue);
    move_exchange_ask(m->x);
    m->own = io_queue_buffer(m->x->queue, slot);
    memset(m->pages, 0, sizeof m->pages);
    int status = send_there(m, round, window, m->in, err);
    if (status) return status;
    place_fragments(m, bytes_from_all(m, round));
    move_exchange_start(m->x, window, m->pages, slot, m->own);
    return DCP_OK;
}

static int begin_reading(message_exchange *m, asked_window *a, size_t round, uint64_t window,
                         dcp_error *err) {
    a->round = round;
    a->window = window;
    move_exchange_ask(m->x);
    int status = send_there(m, round, window, a->heads, err);
    if (status) return status;
    memset(m->pages, 0, sizeof m->pages);
    const unsigned char *end = a->heads + bytes_from_all(m, round);
    for (const unsigned char *at = a->heads; at < end; at += HEAD_BYTES) {
        uint32_t offset = core_get_u32(at), bytes = core_get_u32(at + 4);
        for (uint32_t page = offset / PAGE_BYTES; page <= (offset + bytes - 1) / PAGE_BYTES; page++)
            m->pages[page] = 1;
    }
    a->slot = io_queue_next(m->x->queue);
    move_exchange_start(m->x, window, m->pages, a->slot, io_queue_buffer(m->x->queue, a->slot));
    return DCP_OK;
}

static void pack_answers(const message_exchange *m, const asked_window *a) {
    const unsigned char *at = a->heads, *domain = io_queue_buffer(m->x->queue, a->slot);
    const unsigned char *end = at + bytes_from_all(m, a->round);
    unsigned char *to = m->out;
    for (; at < end; at += HEAD_BYTES) {
        uint32_t bytes = core_get_u32(at + 4);
        memcpy(to, domain + core_get_u32(at), bytes);
        to += bytes;
    }
}

static int take_fragment(void *ctx, const move_fragment *f) {
    message_exchange *m = ctx;
    move_exchange_put(m->x, f, m->at);
    m->at += f->bytes;
    return 0;
}

static int end_reading(message_exchange *m, const asked_window *a, dcp_error *err) {
    move_exchange_wait(m->x, a->slot);
    pack_answers(m, a);
    int status = comm_rounds_answer(&m->back, a->round, m->out, m->in, err);
    if (status) return status;
    m->at = m->in;
    for (int r = 0; r < m->comm->size; r++)
        move_exchange_walk(m->x, TAKE_WALK, a->window, r, take_fragment, m);
    return DCP_OK;
}

static int write_windows(message_exchange *m, const uint64_t *list, size_t n, dcp_error *err) {
    int status = DCP_OK;
    for (size_t i = 0; i < n && !status; i++) status = write_window(m, i, list[i], err);
    return status;
}

static int read_windows(message_exchange *m, const uint64_t *list, size_t n, dcp_error *err) {
    int status = begin_reading(m, &m->asked[0], 0, list[0], err);
    for (size_t i = 0; i < n && !status; i++) {
        if (i + 1 < n) status = begin_reading(m, &m->asked[(i + 1) % 2], i + 1, list[i + 1], err);
        if (!status) status = end_reading(m, &m->asked[i % 2], err);
    }
    return status;
}

int move_exchange_by_messages(move_exchange *x, dcp_error *err) {
    message_exchange m = {
        .x = x, .comm = x->comm, .to_file = x->transfer->direction == MOVE_TO_FILE};
    int status = DCP_OK;
    for (size_t done = 0, n; done < x->windows.n && !status; done += n) {
        const uint64_t *list = x->windows.list + done;
        n = core_min_u64(x->windows.n - done, COMM_ROUNDS_AT_ONCE);
        status = agree_on_sizes(&m, list, n, err);
        if (!status) status = allocate_messages(&m, err);
        if (!status) status = (m.to_file ? write_windows : read_windows)(&m, list, n, err);
        free_messages(&m);
    }
    return status;
}
