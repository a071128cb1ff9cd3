/* Sends small messages of an all-to-all by way of other ranks. A message to a rank at
 * distance d, counted upwards, travels in steps of 1, 2, 4, ... ranks: the powers of two whose sum
 * is d. In round k, a rank sends all messages whose distance contains the power 2^k, both its own
 * and those that it passes on for others, to the rank at distance 2^k. They travel as one message.
 * Only the sender knows its length, so its first part, of at most FIRST_BYTES, begins with the
 * length. */
#include "comm/pairs.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "comm/batch.h"
#include "core/bytes.h"

#ifndef FIRST_BYTES /* tests set all of these to small values */
#define FIRST_BYTES ((uint64_t)16 << 10)
#define ROUTED_BYTES ((uint64_t)2 << 20) /* with more per rank, messages go directly */
#define ROUTED_PEERS 64 /* direct messages to this many peers, or fewer, take a round or two */
#endif
#define REST_BYTES ((uint64_t)32 << 20) /* the most bytes of each part after the first */

typedef struct packet {
    uint32_t to, from;
    uint64_t bytes; /* size of the message, which follows this head */
} packet;

/* Packets one after the other. They follow a word that holds the length of the whole list,
 * including that word. */
typedef struct packet_list {
    unsigned char *data;
    uint64_t bytes, capacity;
} packet_list;

typedef struct routing {
    comm_pairs *pairs;
    packet_list held, out, in; /* held: for later rounds; out, in: of this round */
    packet_list free;          /* memory to reuse */
    unsigned char *recv;
    const uint64_t *recv_bytes;
    uint64_t *begins; /* [rank]: where its message begins in `recv` */
} routing;

bool comm_pairs_should_route(int ranks, uint64_t peers, uint64_t bytes) {
    return ranks > ROUTED_PEERS && peers > ROUTED_PEERS && bytes <= ROUTED_BYTES;
}

/* Makes room for `bytes` in total. Returns -1 if memory is short. */
static int reserve_list(packet_list *list, uint64_t bytes) {
    if (bytes <= list->capacity) return 0;
    const uint64_t capacity = bytes + bytes / 2 + FIRST_BYTES;
    unsigned char *data = realloc(list->data, capacity);
    if (!data) return -1;
    list->data = data;
    list->capacity = capacity;
    return 0;
}

static int add_packet(packet_list *list, packet head, const void *data) {
    const uint64_t bytes = sizeof head + head.bytes;
    if (reserve_list(list, list->bytes + bytes)) return -1;
    memcpy(list->data + list->bytes, &head, sizeof head);
    memcpy(list->data + list->bytes + sizeof head, data, head.bytes);
    list->bytes += bytes;
    return 0;
}

static int empty_list(packet_list *list) {
    list->bytes = sizeof list->bytes;
    return reserve_list(list, FIRST_BYTES);
}

static int distance_to(const comm_pairs *p, uint32_t to) {
    return ((int)to - p->rank + p->size) % p->size;
}

/* Copies the packets of `from` that travel in the round of distance d into `out`, and the others
 * into `held`. Delivers those that are for this rank. Returns -1 if memory is short, or if a packet
 * does not have the size that this rank expects. */
static int sort_packets(routing *r, const packet_list *from, int d) {
    uint64_t at = sizeof from->bytes;
    while (at < from->bytes) {
        packet head;
        memcpy(&head, from->data + at, sizeof head);
        const unsigned char *data = from->data + at + sizeof head;
        const int distance = distance_to(r->pairs, head.to);
        at += sizeof head + head.bytes;
        if (distance) {
            if (add_packet(distance & d ? &r->out : &r->held, head, data)) return -1;
            continue;
        }
        if (head.bytes != r->recv_bytes[head.from]) return -1;
        memcpy(r->recv + r->begins[head.from], data, head.bytes);
    }
    return 0;
}

/* Sends the round's message to the rank at distance d above, and receives one from the rank at
 * distance d below. */
static int pass_on(routing *r, int d) {
    comm_pairs *p = r->pairs;
    const int up = (p->rank + d) % p->size, down = (p->rank - d + p->size) % p->size;
    comm_batch b = {.pairs = p};
    memcpy(r->out.data, &r->out.bytes, sizeof r->out.bytes);
    comm_batch_receive(&b, r->in.data, FIRST_BYTES, down);
    comm_batch_send(&b, r->out.data, core_min_u64(r->out.bytes, FIRST_BYTES), up);
    int failed = comm_batch_finish(&b);
    if (failed) return failed;
    memcpy(&r->in.bytes, r->in.data, sizeof r->in.bytes);
    if (reserve_list(&r->in, r->in.bytes)) {
        comm_batch_break(p, COMM_FAILED, ENOMEM, p->watch->rank);
        return -1;
    }
    for (uint64_t at = FIRST_BYTES; !failed && (at < r->in.bytes || at < r->out.bytes);
         at += REST_BYTES) {
        if (at < r->in.bytes)
            comm_batch_receive(&b, r->in.data + at, core_min_u64(r->in.bytes - at, REST_BYTES),
                               down);
        if (at < r->out.bytes)
            comm_batch_send(&b, r->out.data + at, core_min_u64(r->out.bytes - at, REST_BYTES), up);
        failed = comm_batch_finish(&b);
    }
    return failed;
}

static int begin_routing(routing *r, const unsigned char *send, const uint64_t *send_bytes) {
    const int size = r->pairs->size, own = r->pairs->rank;
    uint64_t at = 0;
    r->begins = core_array((size_t)size, sizeof *r->begins);
    if (!r->begins || empty_list(&r->held) || empty_list(&r->out) || empty_list(&r->in)) return -1;
    for (int i = 0; i < size; i++) {
        r->begins[i] = at;
        at += r->recv_bytes[i];
    }
    for (int i = 0; i < size; send += send_bytes[i++]) {
        const packet head = {(uint32_t)i, (uint32_t)own, send_bytes[i]};
        if (i == own || !send_bytes[i]) continue;
        if (add_packet(distance_to(r->pairs, head.to) & 1 ? &r->out : &r->held, head, send))
            return -1;
    }
    return 0;
}

/* Sorts the packets that this rank has held, and those that have arrived, for the round of distance
 * d. */
static int next_round(routing *r, int d) {
    const packet_list before = r->held;
    r->held = r->free;
    r->free = before;
    if (empty_list(&r->held) || empty_list(&r->out)) return -1;
    return sort_packets(r, &before, d) || sort_packets(r, &r->in, d) ? -1 : 0;
}

/* Collective: an all-to-all as in dcp_comm_ops, without this rank's message to itself. Returns 0,
 * or another value once the watch is broken. */
static int comm_routes_alltoall(comm_pairs *p, const void *send, const uint64_t *send_bytes,
                                void *recv, const uint64_t *recv_bytes) {
    routing r = {.pairs = p, .recv = recv, .recv_bytes = recv_bytes};
    int lacks = begin_routing(&r, send, send_bytes), failed = 0;
    for (int d = 1; d < p->size && !lacks && !failed; d *= 2) {
        failed = pass_on(&r, d);
        if (!failed) lacks = next_round(&r, 2 * d);
    }
    if (lacks) comm_batch_break(p, COMM_FAILED, ENOMEM, p->watch->rank);
    free(r.held.data);
    free(r.out.data);
    free(r.in.data);
    free(r.free.data);
    free(r.begins);
    return failed || lacks ? -1 : 0;
}

/* Counts in MPI-3 are ints, so larger messages go in pieces. Every rank derives the pieces from
 * sizes that both sides know, so no rank waits for a piece that is not sent. Memory is allocated
 * only for what a rank passes on for others; if memory is short, the rank breaks the
 * communicator. */

#ifndef PIECE_BYTES                      /* tests set these to small values */
#define PIECE_BYTES ((uint64_t)64 << 20) /* documented with dcp_comm_set_limit */
#define PIPE_BYTES ((uint64_t)512 << 10) /* parts of a broadcast that goes from rank to rank */
#define HALVE_BYTES ((uint64_t)16 << 10) /* the smallest reduction that ranks divide */
#define FEW_RANKS 64   /* the most ranks that send straight to the root of a gather */
#define FEW_BYTES 4096 /* if ranks send more than this, all send straight to the root */
#endif
#define SPARE_BYTES ((uint64_t)1 << 20)

uint64_t *comm_pairs_make_spare(void) { return malloc(SPARE_BYTES); }

/* A walk around the ring of ranks, over a buffer that holds bytes[r] bytes for each rank r. */
typedef struct pairs_ring {
    const uint64_t *bytes;
    int size;
    int peer;
    uint64_t offset; /* where the peer's bytes begin */
} pairs_ring;

static pairs_ring ring_at(const uint64_t *bytes, int size, int peer) {
    pairs_ring ring = {bytes, size, peer, 0};
    for (int r = 0; r < peer; r++) ring.offset += bytes[r];
    return ring;
}

static void ring_up(pairs_ring *ring) {
    ring->offset += ring->bytes[ring->peer];
    if (++ring->peer == ring->size) *ring = ring_at(ring->bytes, ring->size, 0);
}

static void ring_down(pairs_ring *ring) {
    if (ring->peer == 0) *ring = ring_at(ring->bytes, ring->size, ring->size);
    ring->offset -= ring->bytes[--ring->peer];
}

/* Returns the size of piece number `piece` of the peer's message; 0 if the message has fewer
 * pieces. */
static uint64_t piece_bytes(const pairs_ring *ring, uint64_t piece) {
    uint64_t begin = piece * PIECE_BYTES, bytes = ring->bytes[ring->peer];
    return begin < bytes ? core_min_u64(bytes - begin, PIECE_BYTES) : 0;
}

/* Exchanges piece number `piece` between all pairs of ranks. At distance d each rank sends to the
 * rank d above and receives from the rank d below; several distances are under way at once. There
 * is no deadlock: a rank that is behind all others finds its partners' sends and receives
 * posted. */
static int alltoall_piece(comm_pairs *p, uint64_t piece, const char *send, pairs_ring to,
                          char *recv, pairs_ring from) {
    int failed = 0;
    for (int d = 1; d < to.size && !failed;) {
        comm_batch b = {.pairs = p};
        for (int k = 0; k < COMM_BATCH_PEERS && d < to.size; k++, d++) {
            ring_up(&to);
            ring_down(&from);
            const uint64_t in = piece_bytes(&from, piece), out = piece_bytes(&to, piece);
            if (in) comm_batch_receive(&b, recv + from.offset + piece * PIECE_BYTES, in, from.peer);
            if (out) comm_batch_send(&b, send + to.offset + piece * PIECE_BYTES, out, to.peer);
        }
        failed = comm_batch_finish(&b);
    }
    return failed;
}

static int alltoall_straight(comm_pairs *p, const void *send, pairs_ring to, void *recv,
                             pairs_ring from) {
    uint64_t largest = 0;
    int failed = 0;
    for (int r = 0; r < p->size; r++) {
        if (to.bytes[r] > largest) largest = to.bytes[r];
        if (from.bytes[r] > largest) largest = from.bytes[r];
    }
    for (uint64_t piece = 0; piece * PIECE_BYTES < largest && !failed; piece++)
        failed = alltoall_piece(p, piece, send, to, recv, from);
    return failed;
}

/* A rank's place in a broadcast. It receives from `parent`, and sends to the ranks that are
 * `child`, child / 2, child / 4 and so on above it, as far as these exist. */
typedef struct pairs_tree {
    int own, parent, child; /* counted from the root; parent -1: this is the root */
    uint64_t most;          /* the most bytes that are passed on at once */
} pairs_tree;

/* Small broadcasts go along a tree, with few steps from the root. Large ones go from rank to rank
 * in small parts, so no rank sends them more than once. */
static pairs_tree tree_of(const comm_pairs *p, int root, uint64_t bytes) {
    const int own = (p->rank - root + p->size) % p->size, lowest = own & -own;
    if (p->size > 2 && bytes >= (uint64_t)p->size * PIPE_BYTES)
        return (pairs_tree){own, own - 1, 1, PIPE_BYTES};
    int child = own ? lowest / 2 : 1;
    while (!own && 2 * child < p->size) child *= 2;
    return (pairs_tree){own, own ? own - lowest : -1, child, PIECE_BYTES};
}

static uint64_t part_bytes(uint64_t bytes, uint64_t done, uint64_t most) {
    return core_min_u64(core_min_u64(bytes - done, most), PIECE_BYTES);
}

/* While a part is passed on, the next one arrives. */
static int pairs_broadcast(void *ctx, void *buf, uint64_t bytes, int root) {
    comm_pairs *p = ctx;
    const pairs_tree t = tree_of(p, root, bytes);
    const int parent = (t.parent + root) % p->size;
    comm_batch b = {.pairs = p};
    int failed = comm_batch_receive_failures(p);
    if (t.parent >= 0 && !failed) {
        comm_batch_receive(&b, buf, part_bytes(bytes, 0, t.most), parent);
        failed = comm_batch_finish(&b);
    }
    for (uint64_t done = 0, part; done < bytes && !failed; done += part) {
        part = part_bytes(bytes, done, t.most);
        const uint64_t next = done + part;
        for (int d = t.child; d > 0; d /= 2)
            if (t.own + d < p->size)
                comm_batch_send(&b, (char *)buf + done, part, (t.own + d + root) % p->size);
        if (t.parent >= 0 && next < bytes)
            comm_batch_receive(&b, (char *)buf + next, part_bytes(bytes, next, t.most), parent);
        failed = comm_batch_finish(&b);
    }
    return failed;
}

/* A gather of few bytes, along the tree of broadcasts: each rank sends its own bytes and those of
 * the ranks below it. */
typedef struct tree_gather {
    comm_pairs *pairs;
    uint64_t bytes; /* per rank */
    int root;
    unsigned char *data; /* from this rank and those below it; on the root, in order of ranks */
} tree_gather;

/* Receives or sends the bytes of n ranks starting at `first`, counted from the root. The last of
 * these may have lower numbers than the first; their bytes are then a second part. */
static void add_block(const tree_gather *g, comm_batch *b, bool receives, int first, int n,
                      int peer) {
    const comm_pairs *p = g->pairs;
    const int own = (p->rank - g->root + p->size) % p->size, at = (first + g->root) % p->size;
    const int ends[2] = {n < p->size - at ? n : p->size - at, n};
    for (int part = 0, from = 0; part < 2 && from < n; from = ends[part++]) {
        const int place = own ? first - own + from : (at + from) % p->size;
        unsigned char *data = g->data + (uint64_t)place * g->bytes;
        const uint64_t bytes = (uint64_t)(ends[part] - from) * g->bytes;
        (receives ? comm_batch_receive(b, data, bytes, peer)
                  : comm_batch_send(b, data, bytes, peer));
    }
}

static int gather_along_tree(tree_gather *g) {
    comm_pairs *p = g->pairs;
    const pairs_tree t = tree_of(p, g->root, 0);
    comm_batch b = {.pairs = p};
    int below = 1, failed;
    for (int d = t.child; d > 0; d /= 2) {
        if (t.own + d >= p->size) continue;
        const int n = d < p->size - t.own - d ? d : p->size - t.own - d;
        add_block(g, &b, true, t.own + d, n, (t.own + d + g->root) % p->size);
        if (d + n > below) below = d + n;
    }
    failed = comm_batch_finish(&b);
    if (t.parent < 0 || failed) return failed;
    add_block(g, &b, false, t.own, below, (t.parent + g->root) % p->size);
    return comm_batch_finish(&b);
}

/* Returns the number of ranks whose bytes a rank gathers, including the rank itself. */
static int count_subtree(const pairs_tree *t, int size) {
    const int span = t->parent < 0 ? size : 2 * t->child > 0 ? 2 * t->child : 1;
    return span < size - t->own ? span : size - t->own;
}

static int gather_few(comm_pairs *p, const void *send, uint64_t bytes, void *recv, int root) {
    const pairs_tree t = tree_of(p, root, 0);
    const uint64_t room = (uint64_t)count_subtree(&t, p->size) * bytes;
    tree_gather g = {p, bytes, root, t.own ? malloc(room) : recv};
    if (!g.data) {
        comm_batch_break(p, COMM_FAILED, ENOMEM, p->watch->rank);
        return -1;
    }
    memcpy(g.data + (t.own ? 0 : (uint64_t)root * bytes), send, bytes);
    const int failed = gather_along_tree(&g);
    if (t.own) free(g.data);
    return failed;
}

static int pairs_gather(void *ctx, const void *send, uint64_t bytes, void *recv, int root) {
    comm_pairs *p = ctx;
    int failed = comm_batch_receive_failures(p);
    if (p->size > FEW_RANKS && bytes <= FEW_BYTES && !failed)
        return gather_few(p, send, bytes, recv, root);
    if (p->rank == root && !failed) memcpy((char *)recv + (uint64_t)root * bytes, send, bytes);
    for (uint64_t done = 0, part; done < bytes && !failed; done += part) {
        part = part_bytes(bytes, done, PIECE_BYTES);
        comm_batch b = {.pairs = p};
        if (p->rank != root) comm_batch_send(&b, (const char *)send + done, part, root);
        for (int r = 0; r < p->size && p->rank == root && !failed; r++) {
            if (r != root)
                comm_batch_receive(&b, (char *)recv + (uint64_t)r * bytes + done, part, r);
            if (b.n == COMM_BATCH_PEERS) failed = comm_batch_finish(&b);
        }
        if (!failed) failed = comm_batch_finish(&b);
    }
    return failed;
}

/* Sends values[n] to rank `to`, and receives as many from rank `from` into this rank's spare
 * memory. Rank -1 means no rank. */
static int swap_values(comm_pairs *p, const uint64_t *values, uint64_t n, int to, int from) {
    comm_batch b = {.pairs = p};
    if (from >= 0) comm_batch_receive(&b, p->spare, n * sizeof *values, from);
    if (to >= 0) comm_batch_send(&b, values, n * sizeof *values, to);
    return comm_batch_finish(&b);
}

/* Ranks pair up at distances 1, 2, 4 and so on below `power`. After each step, both ranks of a pair
 * have the reduction of both ranks' values. */
static int reduce_small(comm_pairs *p, int power, uint64_t *values, uint64_t n, dcp_reduce op) {
    int failed = 0;
    for (int d = 1; d < power && !failed; d *= 2) {
        failed = swap_values(p, values, n, p->rank ^ d, p->rank ^ d);
        if (!failed) comm_reduce(values, p->spare, n, op);
    }
    return failed;
}

/* The part of n values that a rank still reduces after it has divided them with its partners at
 * distances power / 2 down to d. */
typedef struct pairs_part {
    uint64_t at, n;
} pairs_part;

static pairs_part divided_part(uint64_t n, int power, int rank, int d) {
    pairs_part part = {0, n};
    for (int i = power / 2; i >= d; i /= 2) {
        const uint64_t half = part.n / 2;
        part = rank & i ? (pairs_part){part.at + half, part.n - half} : (pairs_part){part.at, half};
    }
    return part;
}

/* Pairs of ranks, the most distant pairs first, divide the values that both have: each rank reduces
 * one half. Then they exchange the results, the nearest pairs first. So a rank sends, and receives,
 * no more than about twice the n values. */
static int reduce_large(comm_pairs *p, int power, uint64_t *values, uint64_t n, dcp_reduce op) {
    int failed = 0;
    for (int d = power / 2; d > 0 && !failed; d /= 2) {
        const pairs_part own = divided_part(n, power, p->rank, d);
        const pairs_part other = divided_part(n, power, p->rank ^ d, d);
        comm_batch b = {.pairs = p};
        comm_batch_receive(&b, p->spare, own.n * sizeof *values, p->rank ^ d);
        comm_batch_send(&b, values + other.at, other.n * sizeof *values, p->rank ^ d);
        failed = comm_batch_finish(&b);
        if (!failed) comm_reduce(values + own.at, p->spare, own.n, op);
    }
    for (int d = 1; d < power && !failed; d *= 2) {
        const pairs_part own = divided_part(n, power, p->rank, d);
        const pairs_part other = divided_part(n, power, p->rank ^ d, d);
        comm_batch b = {.pairs = p};
        comm_batch_receive(&b, values + other.at, other.n * sizeof *values, p->rank ^ d);
        comm_batch_send(&b, values + own.at, own.n * sizeof *values, p->rank ^ d);
        failed = comm_batch_finish(&b);
    }
    return failed;
}

/* If the number of ranks is not a power of two, each rank beyond the largest power sends its values
 * to a rank below that power, and receives the result from the same rank. */
static int reduce_part(comm_pairs *p, uint64_t *values, uint64_t n, dcp_reduce op) {
    int power = 1, failed = 0;
    while (2 * power <= p->size) power *= 2;
    const bool beyond = p->rank >= power;
    const int partner = beyond ? p->rank - power : p->rank + power < p->size ? p->rank + power : -1;
    if (partner >= 0)
        failed = swap_values(p, values, n, beyond ? partner : -1, beyond ? -1 : partner);
    if (partner >= 0 && !beyond && !failed) comm_reduce(values, p->spare, n, op);
    if (!beyond && !failed)
        failed = n * sizeof *values < HALVE_BYTES ? reduce_small(p, power, values, n, op)
                                                  : reduce_large(p, power, values, n, op);
    if (partner < 0 || failed) return failed;
    failed = swap_values(p, values, n, beyond ? -1 : partner, beyond ? partner : -1);
    if (beyond && !failed) memcpy(values, p->spare, n * sizeof *values);
    return failed;
}

static int pairs_allreduce(void *ctx, uint64_t *buf, uint64_t count, dcp_reduce op) {
    comm_pairs *p = ctx;
    int failed = comm_batch_receive_failures(p);
    for (uint64_t done = 0, n; done < count && !failed; done += n) {
        n = part_bytes(count * sizeof *buf, done * sizeof *buf, SPARE_BYTES) / sizeof *buf;
        failed = reduce_part(p, buf + done, n, op);
    }
    return failed;
}

/* Finds the maxima over all ranks: most[0] becomes the largest number of other ranks that a rank
 * sends to, or receives from; most[1] the largest number of bytes that a rank sends, or
 * receives. */
static int find_most(comm_pairs *p, const uint64_t *send_bytes, const uint64_t *recv_bytes,
                     uint64_t most[2]) {
    uint64_t peers[2] = {0}, bytes[2] = {0};
    for (int r = 0; r < p->size; r++) {
        if (r == p->rank) continue;
        peers[0] += send_bytes[r] > 0;
        peers[1] += recv_bytes[r] > 0;
        bytes[0] += send_bytes[r];
        bytes[1] += recv_bytes[r];
    }
    most[0] = peers[peers[1] > peers[0]];
    most[1] = bytes[bytes[1] > bytes[0]];
    return pairs_allreduce(p, most, 2, DCP_REDUCE_MAX);
}

static int pairs_alltoall(void *ctx, const void *send, const uint64_t *send_bytes, void *recv,
                          const uint64_t *recv_bytes) {
    comm_pairs *p = ctx;
    const int rank = p->rank, size = p->size;
    const pairs_ring to = ring_at(send_bytes, size, rank), from = ring_at(recv_bytes, size, rank);
    uint64_t most[2] = {0};
    int failed = comm_batch_receive_failures(p);
    if (send_bytes[rank] > 0 && !failed)
        memcpy((char *)recv + from.offset, (const char *)send + to.offset, send_bytes[rank]);
    if (!failed && comm_pairs_should_route(size, UINT64_MAX, 0))
        failed = find_most(p, send_bytes, recv_bytes, most);
    if (failed) return failed;
    if (comm_pairs_should_route(size, most[0], most[1]))
        return comm_routes_alltoall(p, send, send_bytes, recv, recv_bytes);
    return alltoall_straight(p, send, to, recv, from);
}

/* After the step of distance d, a rank knows that the 2 d - 1 ranks below it have entered the
 * barrier: it has received messages from some of these ranks, after those had received messages
 * from the others. */
static int pairs_barrier(void *ctx) {
    comm_pairs *p = ctx;
    int failed = comm_batch_receive_failures(p);
    for (int d = 1; d < p->size && !failed; d *= 2) {
        comm_batch b = {.pairs = p};
        comm_batch_receive(&b, NULL, 0, (p->rank - d + p->size) % p->size);
        comm_batch_send(&b, NULL, 0, (p->rank + d) % p->size);
        failed = comm_batch_finish(&b);
    }
    return failed;
}

const dcp_comm_ops comm_pairs_ops = {
    .size = sizeof comm_pairs_ops,
    .broadcast = pairs_broadcast,
    .allreduce = pairs_allreduce,
    .gather = pairs_gather,
    .alltoall = pairs_alltoall,
    .barrier = pairs_barrier,
};
