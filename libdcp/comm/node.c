/* Every collective is a sequence of rounds. In a round each rank fills its slot, publishes it,
 * waits for all others, and reads theirs. There are two slots a rank, by turns: who fills one again
 * has seen all others publish the round between, and so be done with reading it. */
#include "comm/node.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/bytes.h"
#include "dcp/mpi.h"

#ifndef SLOT_BYTES /* tests set it small */
#define SLOT_BYTES ((size_t)256 << 10)
#endif
#define AREA_BYTES ((size_t)4 << 20)   /* at most */
#define AREAS_BYTES ((size_t)16 << 20) /* of all ranks together, at most but for a page each */
#define SPINS 100                      /* before it sleeps: some microseconds */
#define NAP_NS 1000000                 /* the first time; then MPI may need a push */
#define LONG_NAP_NS 32000000

typedef struct node_seat {
    _Atomic uint32_t round; /* that the rank has published last */
    _Atomic uint32_t waiting;
} node_seat;

static long futex(_Atomic uint32_t *word, int op, uint32_t value, const struct timespec *nap) {
    return syscall(SYS_futex, word, op, value, nap, NULL, 0);
}

static int has_come(node_seat *seat, uint32_t round, uint32_t *seen) {
    *seen = atomic_load(&seat->round);
    return (int32_t)(*seen - round) >= 0;
}

/* A rank that we wait for may itself wait for a message of ours that MPI still has to send. */
static void push_mpi(MPI_Comm comm) {
    int flag;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &flag, MPI_STATUS_IGNORE);
}

/* Naps grow where it waits beside a thread that computes, and so keeps MPI going itself, but for
 * when that thread waits for this one. */
static void wait_for(const struct mpi_ctx *ctx, int rank) {
    struct timespec nap = {.tv_nsec = NAP_NS};
    const node_memory *node = &ctx->node;
    node_seat *seat = node->seats[rank];
    uint32_t seen;
    for (int i = 0; i < (ctx->aside ? 1 : SPINS); i++)
        if (has_come(seat, node->round, &seen)) return;
    while (!has_come(seat, node->round, &seen)) {
        /* before the kernel looks whether `seen` still holds */
        atomic_fetch_add(&seat->waiting, 1);
        long code = futex(&seat->round, FUTEX_WAIT, seen, &nap);
        int timed_out = code && errno == ETIMEDOUT;
        atomic_fetch_sub(&seat->waiting, 1);
        if (timed_out) push_mpi(ctx->comm);
        if (timed_out && ctx->aside && nap.tv_nsec < LONG_NAP_NS) nap.tv_nsec *= 2;
    }
}

/* The rank's slot of a round. */
static unsigned char *slot(const node_memory *node, int rank, uint32_t round) {
    return (unsigned char *)node->seats[rank] + PAGE_BYTES + (round % 2) * node->slot_bytes;
}

static unsigned char *next_slot(const node_memory *node) {
    return slot(node, node->rank, node->round + 1);
}

/* Publishes this rank's next slot; then those of all ranks can be read. */
static void meet(struct mpi_ctx *ctx) {
    node_memory *node = &ctx->node;
    node_seat *own = node->seats[node->rank];
    atomic_store(&own->round, ++node->round);
    if (atomic_load(&own->waiting)) futex(&own->round, FUTEX_WAKE, INT32_MAX, NULL);
    for (int i = 1; i < node->size; i++) wait_for(ctx, (node->rank + i) % node->size);
}

static const unsigned char *read_slot(const node_memory *node, int rank) {
    return slot(node, rank, node->round);
}

static int node_barrier(void *ctx) {
    meet(ctx);
    return 0;
}

static int node_broadcast(void *context, void *buf, uint64_t bytes, int root) {
    struct mpi_ctx *ctx = context;
    const node_memory *node = &ctx->node;
    for (uint64_t done = 0, part; done < bytes; done += part) {
        part = core_min_u64(bytes - done, node->slot_bytes);
        unsigned char *at = (unsigned char *)buf + done;
        if (node->rank == root) memcpy(next_slot(node), at, part);
        meet(ctx);
        if (node->rank != root) memcpy(at, read_slot(node, root), part);
    }
    return 0;
}

static void reduce(uint64_t *buf, const uint64_t *other, uint64_t n, dcp_reduce op) {
    for (uint64_t i = 0; i < n; i++) switch (op) {
        case DCP_REDUCE_MAX:
            if (other[i] > buf[i]) buf[i] = other[i];
            break;
        case DCP_REDUCE_MIN:
            if (other[i] < buf[i]) buf[i] = other[i];
            break;
        case DCP_REDUCE_SUM:
            buf[i] += other[i];
            break;
        case DCP_REDUCE_XOR:
            buf[i] ^= other[i];
            break;
        }
}

static int node_allreduce(void *context, uint64_t *buf, uint64_t count, dcp_reduce op) {
    struct mpi_ctx *ctx = context;
    const node_memory *node = &ctx->node;
    for (uint64_t done = 0, n; done < count; done += n) {
        n = core_min_u64(count - done, node->slot_bytes / sizeof *buf);
        memcpy(next_slot(node), buf + done, n * sizeof *buf);
        meet(ctx);
        for (int r = 0; r < node->size; r++)
            if (r != node->rank) reduce(buf + done, (const uint64_t *)read_slot(node, r), n, op);
    }
    return 0;
}

static int node_gather(void *context, const void *send, uint64_t bytes, void *recv, int root) {
    struct mpi_ctx *ctx = context;
    const node_memory *node = &ctx->node;
    for (uint64_t done = 0, part; done < bytes; done += part) {
        part = core_min_u64(bytes - done, node->slot_bytes);
        memcpy(next_slot(node), (const unsigned char *)send + done, part);
        meet(ctx);
        for (int r = 0; node->rank == root && r < node->size; r++)
            memcpy((unsigned char *)recv + (uint64_t)r * bytes + done, read_slot(node, r), part);
    }
    return 0;
}

/* What the ranks send one another: each one's messages in rank order are a stream, of which a slot
 * holds the next part. The sizes of all messages go first. */
typedef struct streams {
    struct mpi_ctx *ctx;
    const unsigned char *send;
    unsigned char *recv;
    const uint64_t *recv_bytes;
    uint64_t own_bytes, longest;
} streams;

/* One round: everybody's sizes. */
static void meet_sizes(streams *s, const uint64_t *send_bytes) {
    const node_memory *node = &s->ctx->node;
    memcpy(next_slot(node), send_bytes, (size_t)node->size * sizeof *send_bytes);
    meet(s->ctx);
    for (int r = 0; r < node->size; r++) {
        const uint64_t *sizes = (const uint64_t *)read_slot(node, r);
        uint64_t length = 0;
        for (int to = 0; to < node->size; to++) {
            if (to == node->rank) node->begins[r] = length;
            length += sizes[to];
        }
        if (length > s->longest) s->longest = length;
        if (r == node->rank) s->own_bytes = length;
    }
}

/* Takes what bytes [done, done + slot) of the streams hold for this rank. */
static void take(const streams *s, uint64_t done) {
    const node_memory *node = &s->ctx->node;
    unsigned char *to = s->recv;
    for (int r = 0; r < node->size; to += s->recv_bytes[r++]) {
        uint64_t begin = node->begins[r], end = begin + s->recv_bytes[r], from = begin;
        if (from < done) from = done;
        if (end > done + node->slot_bytes) end = done + node->slot_bytes;
        if (from >= end || r == node->rank) continue;
        memcpy(to + (from - begin), read_slot(node, r) + (from - done), end - from);
    }
}

static void copy_own(const streams *s) {
    const node_memory *node = &s->ctx->node;
    unsigned char *to = s->recv;
    for (int r = 0; r < node->rank; r++) to += s->recv_bytes[r];
    if (s->recv_bytes[node->rank])
        memcpy(to, s->send + node->begins[node->rank], s->recv_bytes[node->rank]);
}

static int node_alltoall(void *context, const void *send, const uint64_t *send_bytes, void *recv,
                         const uint64_t *recv_bytes) {
    streams s = {.ctx = context, .send = send, .recv = recv, .recv_bytes = recv_bytes};
    const node_memory *node = &s.ctx->node;
    meet_sizes(&s, send_bytes);
    copy_own(&s);
    for (uint64_t done = 0; done < s.longest; done += node->slot_bytes) {
        if (done < s.own_bytes)
            memcpy(next_slot(node), s.send + done,
                   core_min_u64(s.own_bytes - done, node->slot_bytes));
        meet(s.ctx);
        take(&s, done);
    }
    return 0;
}

const dcp_comm_ops node_ops = {
    .broadcast = node_broadcast,
    .allreduce = node_allreduce,
    .gather = node_gather,
    .alltoall = node_alltoall,
    .barrier = node_barrier,
};

static int may_share(void) {
    const char *word = getenv("DCP_SHARED_MEMORY");
    return !word || strcmp(word, "0") != 0;
}

static int all(MPI_Comm comm, int yes) {
    return MPI_Allreduce(MPI_IN_PLACE, &yes, 1, MPI_INT, MPI_MIN, comm) == MPI_SUCCESS && yes;
}

static size_t area_bytes(int ranks) {
    size_t most = AREAS_BYTES / 2 / (size_t)ranks / PAGE_BYTES * PAGE_BYTES;
    if (most < PAGE_BYTES) most = PAGE_BYTES;
    return most < AREA_BYTES ? most : AREA_BYTES;
}

static size_t slots_bytes(const node_memory *node) {
    return core_round_to_pages(2 * node->slot_bytes);
}

static size_t marks_bytes(const node_memory *node) {
    return core_round_to_pages(node->shared.area_bytes / PAGE_BYTES * sizeof **node->shared.marks);
}

/* What a rank has: its seat, two slots, the marks of two areas, two areas. */
static size_t rank_bytes(const node_memory *node) {
    return PAGE_BYTES + slots_bytes(node) + 2 * (marks_bytes(node) + node->shared.area_bytes);
}

static size_t all_bytes(const node_memory *node) { return (size_t)node->size * rank_bytes(node); }

static void find_parts(node_memory *node, int rank) {
    unsigned char *at = node->memory + (size_t)rank * rank_bytes(node);
    node->seats[rank] = (node_seat *)at;
    at += PAGE_BYTES + slots_bytes(node);
    for (int i = 0; i < 2; i++) {
        node->shared.marks[2 * rank + i] = (_Atomic uint16_t *)at;
        at += marks_bytes(node);
    }
    for (int i = 0; i < 2; i++) {
        node->shared.areas[2 * rank + i] = at;
        at += node->shared.area_bytes;
    }
}

static int make_lists(node_memory *node) {
    size_t ranks = (size_t)node->size;
    node->seats = calloc(ranks, sizeof *node->seats);
    node->begins = calloc(ranks, sizeof *node->begins);
    node->shared.areas = calloc(2 * ranks, sizeof *node->shared.areas);
    node->shared.marks = calloc(2 * ranks, sizeof *node->shared.marks);
    return node->seats && node->begins && node->shared.areas && node->shared.marks;
}

int comm_node_join(struct mpi_ctx *ctx) {
    node_memory *node = &ctx->node;
    *node = (node_memory){.slot_bytes = SLOT_BYTES};
    MPI_Comm_rank(ctx->comm, &node->rank);
    MPI_Comm_size(ctx->comm, &node->size);
    node->shared.area_bytes = area_bytes(node->size);
    int too_many = (size_t)node->size > SLOT_BYTES / sizeof(uint64_t); /* see meet_sizes */
    if (node->size == 1 || too_many) return 0;
    if (all(ctx->comm, make_lists(node) && may_share()))
        node->memory = dcp_host_memory_create(ctx->comm, all_bytes(node));
    if (!node->memory) {
        comm_node_leave(ctx);
        return 0;
    }
    for (int r = 0; r < node->size; r++) find_parts(node, r);
    return 1;
}

void comm_node_leave(struct mpi_ctx *ctx) {
    node_memory *node = &ctx->node;
    dcp_host_memory_free(node->memory, all_bytes(node));
    free(node->seats);
    free(node->begins);
    free(node->shared.areas);
    free(node->shared.marks);
    *node = (node_memory){0};
}
