#include "crowd.h"

#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "comm/batch.h"
#include "comm/pairs.h"
#include "core/bytes.h"
#include "data.h"
#include "fibers.h"
#include "world.h"

enum { BROADCAST, ALLREDUCE, GATHER, ALLTOALL, BARRIER, MEETING };
enum {
    PART = 4096,
    DATA_BYTES = 4096,    /* shorter messages may have none */
    SHARED_BYTES = 65536, /* such tables have pages of their own (heap.h) */
    SIZES_BYTES = 16384,  /* such messages tell who has what */
    PACKET_BYTES = 16,    /* before a message that goes by way of others (comm/pairs.c) */
    LENGTH_BYTES = 8      /* before all of them */
};

static crowd_rank *running;

static double processor_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

crowd_rank *crowd_now(void) { return running; }

void crowd_copy_changed(void *to, const void *from, uint64_t bytes) {
    for (uint64_t at = 0, part; at < bytes; at += part) {
        part = core_min_u64(bytes - at, PART);
        if (memcmp((char *)to + at, (const char *)from + at, part))
            memcpy((char *)to + at, (const char *)from + at, part);
    }
}

static crowd_rank *first_of(crowd *c, const crowd_group *g) { return &c->ranks[g->first]; }

/* A copy, for all ranks of the group. */
static crowd_result *tell_all(crowd_rank *ranks, const crowd_group *g, const void *data) {
    crowd_result *result = malloc(sizeof *result + g->bytes);
    NEED(result);
    *result = (crowd_result){.users = g->n, .bytes = g->bytes};
    memcpy(result->data, data, g->bytes);
    for (int r = 0; r < g->n; r++) ranks[r].result = result;
    return result;
}

static void take_result(crowd_rank *me) {
    crowd_result *result = me->result;
    if (!result) return;
    crowd_copy_changed(me->receive, result->data, result->bytes);
    me->result = NULL;
    heap *counted = heap_use(NULL);
    if (--result->users == 0) free(result);
    heap_use(counted);
}

static void do_allreduce(crowd_rank *ranks, const crowd_group *g) {
    const size_t n = g->bytes / 8;
    uint64_t *all = (uint64_t *)(void *)tell_all(ranks, g, ranks[0].receive)->data;
    for (int r = 1; r < g->n; r++) comm_reduce(all, ranks[r].receive, n, (dcp_reduce)g->op);
}

static void do_gather(crowd_rank *ranks, const crowd_group *g) {
    for (int r = 0; r < g->n; r++)
        crowd_copy_changed((char *)ranks[g->root].receive + (uint64_t)r * g->bytes, ranks[r].send,
                           g->bytes);
}

static counts_messages *kind_of_message(crowd_rank *r) {
    return r->moves ? &r->crowd->counts.data : &r->crowd->counts.other;
}

/* The messages of an all-to-all. */
typedef struct traffic {
    uint64_t n, bytes;           /* between two ranks */
    uint64_t least, most;        /* of a message, those of no bytes as well */
    uint64_t peers, peers_bytes; /* the most that a rank sends to or receives from; their bytes */
} traffic;

static uint64_t bytes_between(const crowd *c, int from, int to) {
    return from == to ? 0 : c->ranks[from].send_bytes[to];
}

static uint64_t largest(const uint64_t *list, size_t n) {
    uint64_t most = 0;
    for (size_t i = 0; i < n; i++)
        if (list[i] > most) most = list[i];
    return most;
}

/* Counts for each rank how many ranks it sends to and receives from, and the bytes of both. */
static traffic measure_traffic(const crowd *c) {
    const size_t ranks = (size_t)c->size;
    traffic t = {.least = UINT64_MAX};
    uint64_t *peers = calloc(4 * ranks, sizeof *peers), *totals = peers + 2 * ranks;
    NEED(peers);
    for (int s = 0; s < c->size; s++)
        for (int r = 0; r < c->size; r++) {
            const uint64_t bytes = bytes_between(c, s, r);
            if (bytes < t.least && r != s) t.least = bytes;
            if (!bytes) continue;
            if (bytes > t.most) t.most = bytes;
            peers[s]++;
            peers[ranks + (size_t)r]++;
            totals[s] += bytes;
            totals[ranks + (size_t)r] += bytes;
        }
    for (size_t s = 0; s < ranks; s++) {
        t.n += peers[s];
        t.bytes += totals[s];
    }
    t.peers = largest(peers, 2 * ranks);
    t.peers_bytes = largest(totals, 2 * ranks);
    free(peers);
    return t;
}

/* Adds what a packet takes to the round of each distance that it goes. */
static void route_packet(const crowd *c, int from, int to, uint64_t *rounds) {
    const int distance = (to - from + c->size) % c->size;
    const uint64_t bytes = PACKET_BYTES + c->ranks[from].send_bytes[to];
    for (int d = 1, at = from; d <= distance; d *= 2, rounds += c->size)
        if (distance & d) {
            rounds[at] += bytes;
            at = (at + d) % c->size;
        }
}

/* Where all messages have as many bytes. */
static void route_alike(const crowd *c, uint64_t bytes, uint64_t *rounds) {
    for (int d = 1; d < c->size; d *= 2, rounds += c->size) {
        uint64_t packets = 0;
        for (int distance = 1; distance < c->size; distance++) packets += (distance & d) != 0;
        for (int r = 0; r < c->size; r++) rounds[r] += packets * (PACKET_BYTES + bytes);
    }
}

/* As comm/pairs.c sends them over MPI: a message a rank and round, to a rank twice as far as in
 * the round before. */
static void count_routed(crowd *c, const traffic *t, counts_messages *m) {
    int n_rounds = 0;
    while (1 << n_rounds < c->size) n_rounds++;
    uint64_t *rounds = calloc((size_t)n_rounds * (size_t)c->size, sizeof *rounds);
    NEED(rounds);
    if (t->least == t->most) route_alike(c, t->most, rounds);
    for (int s = 0; s < c->size && t->least < t->most; s++)
        for (int r = 0; r < c->size; r++)
            if (bytes_between(c, s, r)) route_packet(c, s, r, rounds);
    for (int k = 0; k < n_rounds; k++)
        for (int r = 0; r < c->size; r++)
            counts_add_message(&c->counts, m, r, (r + (1 << k)) % c->size,
                               LENGTH_BYTES + rounds[k * c->size + r]);
    free(rounds);
}

static void count_straight(crowd *c, counts_messages *m) {
    for (int s = 0; s < c->size; s++)
        for (int r = 0; r < c->size; r++)
            if (bytes_between(c, s, r))
                counts_add_message(&c->counts, m, s, r, bytes_between(c, s, r));
}

static void do_alltoall(crowd *c) {
    char **to = malloc((size_t)c->size * sizeof *to);
    NEED(to);
    for (int r = 0; r < c->size; r++) to[r] = c->ranks[r].receive;
    for (int s = 0; s < c->size; s++) {
        const char *from = c->ranks[s].send;
        for (int r = 0; r < c->size; r++) {
            const uint64_t bytes = c->ranks[s].send_bytes[r];
            if (!bytes) continue;
            crowd_copy_changed(to[r], from, bytes);
            to[r] += bytes;
            from += bytes;
        }
    }
    free(to);
}

/* Sizes travel by all-to-alls as well as data. Small messages to many go by way of other ranks. */
static void count_alltoall(crowd *c) {
    const traffic t = measure_traffic(c);
    const int moves = c->ranks[0].moves && (!t.n || t.bytes / t.n >= SIZES_BYTES);
    counts_messages *m = moves ? &c->counts.data : &c->counts.other;
    if (comm_pairs_should_route(c->size, t.peers, t.peers_bytes))
        count_routed(c, &t, m);
    else
        count_straight(c, m);
    c->counts.empty_collectives += moves && !t.n;
    c->counts.data_collectives += (uint64_t)moves;
    c->counts.collectives += !moves;
}

static void do_collective(crowd *c, const crowd_group *g) {
    crowd_rank *ranks = first_of(c, g);
    if (g->kind == BROADCAST) tell_all(ranks, g, ranks[g->root].receive);
    if (g->kind == ALLREDUCE) do_allreduce(ranks, g);
    if (g->kind == GATHER) do_gather(ranks, g);
    if (g->kind == ALLTOALL) {
        do_alltoall(c);
        count_alltoall(c);
    } else if (g == &c->all) {
        c->counts.collectives++;
    } else {
        c->counts.host_collectives++;
    }
}

static void leave_rank(void *ctx, int number) {
    const crowd *c = ctx;
    crowd_rank *r = &c->ranks[number];
    if (c->clocks) r->cpu_s += processor_clock() - r->resumed;
    heap_use(NULL);
    running = NULL;
}

static void enter_rank(void *ctx, int number) {
    const crowd *c = ctx;
    running = &c->ranks[number];
    if (c->clocks) running->resumed = processor_clock();
    heap_use(&running->heap);
}

/* The rank that comes last does it, but not on its own account. */
static int meet(crowd_rank *me, crowd_group *g, int kind, uint64_t bytes, int root, int op,
                void (*fn)(crowd *c, int what)) {
    crowd *c = me->crowd;
    if (!g->arrived) {
        g->kind = kind;
        g->bytes = bytes;
        g->root = root;
        g->op = op;
    }
    NEED(g->kind == kind && g->bytes == bytes && g->root == root && g->op == op);
    if (++g->arrived < g->n) {
        fibers_wait(&g->done);
        take_result(me);
        return 0;
    }
    leave_rank(c, me->rank);
    if (fn)
        fn(c, op);
    else
        do_collective(c, g);
    enter_rank(c, me->rank);
    g->arrived = 0;
    g->done++;
    take_result(me);
    return 0;
}

static int crowd_broadcast(void *ctx, void *buf, uint64_t bytes, int root) {
    crowd_rank *me = ctx;
    me->receive = buf;
    return meet(me, &me->crowd->all, BROADCAST, bytes, root, 0, NULL);
}

static int crowd_allreduce(void *ctx, uint64_t *buf, uint64_t count, dcp_reduce op) {
    crowd_rank *me = ctx;
    me->receive = buf;
    return meet(me, &me->crowd->all, ALLREDUCE, count * 8, 0, (int)op, NULL);
}

static int crowd_gather(void *ctx, const void *send, uint64_t bytes, void *receive, int root) {
    crowd_rank *me = ctx;
    me->send = send;
    me->receive = receive;
    return meet(me, &me->crowd->all, GATHER, bytes, root, 0, NULL);
}

static int crowd_alltoall(void *ctx, const void *send, const uint64_t *send_bytes, void *receive,
                          const uint64_t *receive_bytes) {
    crowd_rank *me = ctx;
    me->send = send;
    me->receive = receive;
    me->send_bytes = send_bytes;
    me->receive_bytes = receive_bytes;
    return meet(me, &me->crowd->all, ALLTOALL, 0, 0, 0, NULL);
}

static int crowd_barrier(void *ctx) {
    crowd_rank *me = ctx;
    return meet(me, &me->crowd->all, BARRIER, 0, 0, 0, NULL);
}

static int host_broadcast(void *ctx, void *buf, uint64_t bytes, int root) {
    crowd_rank *me = ctx;
    me->receive = buf;
    return meet(me, me->host, BROADCAST, bytes, root, 0, NULL);
}

static int host_allreduce(void *ctx, uint64_t *buf, uint64_t count, dcp_reduce op) {
    crowd_rank *me = ctx;
    me->receive = buf;
    return meet(me, me->host, ALLREDUCE, count * 8, 0, (int)op, NULL);
}

static int host_barrier(void *ctx) {
    crowd_rank *me = ctx;
    return meet(me, me->host, BARRIER, 0, 0, 0, NULL);
}

static void post(crowd_rank *me, const dcp_comm_message *m) {
    crowd_rank *to = &me->crowd->ranks[m->peer];
    crowd_letter *own = malloc(sizeof *own), **end = &to->letters;
    NEED(own);
    *own = (crowd_letter){me->rank, m->data, m->bytes, NULL};
    while (*end) end = &(*end)->next;
    *end = own;
    me->sent++;
    to->news++;
    counts_add_message(&me->crowd->counts, kind_of_message(me), me->rank, m->peer, m->bytes);
}

/* Copies a message of data, which comes from memory that ranks share or goes there: fragments, each
 * a u32 where it lies and a u32 how long it is before its bytes, of which the numbers alone matter;
 * or data alone. 0: it is something else. */
static int copy_heads(unsigned char *to, const unsigned char *from, uint64_t bytes) {
    uint64_t at = 0;
    if (bytes < DATA_BYTES || !(data_is_shared(from) || data_is_shared(to))) return 0;
    if (!core_get_u64(from)) return 1;
    while (at + 8 <= bytes) at += 8 + (uint64_t)core_get_u32(from + at + 4);
    if (at != bytes) return 0;
    for (at = 0; at < bytes; at += 8 + (uint64_t)core_get_u32(from + at + 4))
        memcpy(to + at, from + at, 8);
    return 1;
}

/* 0: it has not come yet. */
static int take(crowd_rank *me, const dcp_comm_message *m) {
    crowd_letter **at = &me->letters;
    while (*at && (*at)->from != m->peer) at = &(*at)->next;
    crowd_letter *own = *at;
    if (!own) return 0;
    NEED(own->bytes == m->bytes);
    if (copy_heads(m->data, own->data, m->bytes))
        data_drop_pages((void *)own->data, m->bytes); /* nobody looks at them again */
    else
        crowd_copy_changed(m->data, own->data, m->bytes);
    *at = own->next;
    free(own);
    me->crowd->ranks[m->peer].sent--;
    me->crowd->ranks[m->peer].news++;
    return 1;
}

static int crowd_exchange(void *ctx, const dcp_comm_message *send, uint64_t sends,
                          const dcp_comm_message *receive, uint64_t receives) {
    crowd_rank *me = ctx;
    uint64_t taken = 0;
    leave_rank(me->crowd, me->rank);
    for (uint64_t i = 0; i < sends; i++)
        if (send[i].bytes) post(me, &send[i]);
    for (;;) {
        while (taken < receives && (!receive[taken].bytes || take(me, &receive[taken]))) taken++;
        if (taken == receives && !me->sent) break;
        enter_rank(me->crowd, me->rank);
        fibers_wait(&me->news);
        leave_rank(me->crowd, me->rank);
    }
    enter_rank(me->crowd, me->rank);
    return 0;
}

void crowd_meet(crowd *c, void (*fn)(crowd *c, int what), int what) {
    meet(running, &c->all, MEETING, 0, 0, what, fn);
}

/* As ranks of one host share it; what is in the halves is data that nobody looks at. */
static void share_memory(crowd *c, dcp_comm *comm) {
    comm_shared *shared = &c->shared;
    comm->shared = shared;
    if (shared->stopped) return;
    shared->stopped = calloc(1, sizeof *shared->stopped);
    NEED(shared->stopped);
}

/* Ranks of a host share memory: they are a group. */
static void join_host(crowd *c, dcp_comm *comm) {
    static const dcp_comm_ops ops = {.size = sizeof(dcp_comm_ops),
                                     .broadcast = host_broadcast,
                                     .allreduce = host_allreduce,
                                     .barrier = host_barrier};
    uint64_t *keys = malloc((size_t)c->size * sizeof *keys);
    NEED(keys);
    for (int r = 0; r < c->size; r++) keys[r] = (uint64_t)(r / c->ranks_a_host);
    comm_groups *groups = comm_groups_make(running->rank, c->size, keys);
    free(keys);
    NEED(groups);
    comm_local_set(&comm->local, groups, &ops, running);
    if (c->size <= c->ranks_a_host) share_memory(c, comm);
}

/* The table of eights is the same on all ranks: its whole pages become those of one file. */
static void share_eights(const dcp_comm *comm) {
    static int fd = -1;
    const uintptr_t from = core_round_to_pages((uintptr_t)comm->eights),
                    to = (uintptr_t)(comm->eights + comm->size) / PAGE_BYTES * PAGE_BYTES;
    if (to <= from || to - from < SHARED_BYTES) return;
    if (fd < 0) {
        fd = memfd_create("eights", MFD_CLOEXEC);
        NEED(write(fd, (const void *)from, to - from) == (ssize_t)(to - from));
    }
    NEED(mmap((void *)from, to - from, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd, 0) ==
         (void *)from);
}

dcp_comm *crowd_comm(crowd *c) {
    static const dcp_comm_ops ops = {.size = sizeof(dcp_comm_ops),
                                     .broadcast = crowd_broadcast,
                                     .allreduce = crowd_allreduce,
                                     .gather = crowd_gather,
                                     .alltoall = crowd_alltoall,
                                     .barrier = crowd_barrier,
                                     .exchange = crowd_exchange};
    dcp_comm *comm = NULL;
    char host[32];
    snprintf(host, sizeof host, "n%d", running->rank / c->ranks_a_host);
    NEED(!dcp_comm_from_ops(&ops, running, running->rank, c->size, &comm, NULL));
    share_eights(comm);
    NEED(!dcp_comm_set_host(comm, host, NULL));
    if (c->shares && c->ranks_a_host > 1) join_host(c, comm);
    return comm;
}

void crowd_make(crowd *c, int size, int ranks_a_host) {
    const int hosts = (size + ranks_a_host - 1) / ranks_a_host;
    *c = (crowd){.size = size, .ranks_a_host = ranks_a_host, .all = {.n = size}};
    c->ranks = calloc((size_t)size, sizeof *c->ranks);
    c->hosts = calloc((size_t)hosts, sizeof *c->hosts);
    NEED(c->ranks && c->hosts);
    for (int r = 0; r < size; r++) {
        crowd_group *host = &c->hosts[r / ranks_a_host];
        if (!host->n++) host->first = r;
        c->ranks[r] = (crowd_rank){.crowd = c, .host = host, .rank = r};
    }
    counts_make(&c->counts, size, ranks_a_host);
}

void crowd_free(crowd *c) {
    counts_free(&c->counts);
    free(c->ranks);
    free(c->hosts);
}

void crowd_run(crowd *c, void (*run)(void *ctx, int rank)) {
    const fibers_user user = {run, enter_rank, leave_rank, c};
    fibers_run(c->size, &user);
}
