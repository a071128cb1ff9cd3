/* A message to a rank that is d above goes up by 1, 2, 4 and so on, as far as these are in d: in
 * round k a rank passes those on that have 2^k still in their way, with those that came to it for
 * others. All messages of a round are one, whose length nobody else knows: it says so in its first
 * part, which is as long as both sides expect, or shorter. */
#include "comm/routes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"

#ifndef FIRST_BYTES /* tests set all small */
#define FIRST_BYTES ((uint64_t)16 << 10)
#define ROUTED_BYTES ((uint64_t)2 << 20) /* that a rank sends or receives: more goes straight */
#define ROUTED_PEERS 64                  /* up to so many, straight ones take a round or two */
#endif
#define REST_BYTES ((uint64_t)32 << 20) /* of the other parts */

typedef struct packet {
    uint32_t to, from;
    uint64_t bytes; /* behind it */
} packet;

/* Packets one after the other, behind the length of all, which is counted in it. */
typedef struct packet_list {
    unsigned char *data;
    uint64_t bytes, capacity;
} packet_list;

typedef struct routing {
    comm_pairs *pairs;
    packet_list held, out, in; /* for later rounds, for this round, from this round */
    packet_list free;          /* memory */
    unsigned char *recv;
    const uint64_t *recv_bytes;
    uint64_t *begins; /* of each rank's message in `recv` */
} routing;

int comm_routes_pay(int ranks, uint64_t peers, uint64_t bytes) {
    return ranks > ROUTED_PEERS && peers > ROUTED_PEERS && bytes <= ROUTED_BYTES;
}

/* Room for `bytes` in all. -1: memory is short. */
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

/* Those of `from` that go in the round of distance d, into `out`; the others, into `held`. Those
 * that are for this rank are delivered. -1: memory is short, or the ranks' sizes differ. */
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

/* The round's message up by d, and that from below. */
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
    r->begins = malloc((size_t)size * sizeof *r->begins);
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

/* For the round of distance d: what this rank has held, and what has come. */
static int next_round(routing *r, int d) {
    const packet_list before = r->held;
    r->held = r->free;
    r->free = before;
    if (empty_list(&r->held) || empty_list(&r->out)) return -1;
    return sort_packets(r, &before, d) || sort_packets(r, &r->in, d) ? -1 : 0;
}

int comm_routes_alltoall(comm_pairs *p, const void *send, const uint64_t *send_bytes, void *recv,
                         const uint64_t *recv_bytes) {
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
