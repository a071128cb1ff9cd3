#include "support/ranks.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHANNELS = 64, SLOT_BYTES = 1 << 20 };

/* The channel of one communicator: each rank writes into its own slot, and all read between two
 * meetings. */
typedef struct channel {
    pthread_barrier_t meeting;
    uint64_t sent[RANKS_MOST][RANKS_MOST];
    unsigned char slots[RANKS_MOST][SLOT_BYTES];
} channel;

struct ranks {
    int n, used;
    size_t bytes;
    pthread_barrier_t meeting;
    channel channels[CHANNELS];
    unsigned char shared[];
};

typedef struct seat {
    ranks *r;
    channel *c;
    int rank;
    atomic_int is_taken; /* by a thread of this rank */
} seat;

static void stop(const char *why) {
    fprintf(stderr, "ranks: %s\n", why);
    abort();
}

static void meet(const seat *s) { pthread_barrier_wait(&s->c->meeting); }

/* Begins a call. Two threads in one communicator would receive each other's messages. */
static seat *sit_down(void *ctx) {
    seat *s = ctx;
    if (atomic_exchange(&s->is_taken, 1)) stop("two threads are in one communicator");
    return s;
}

static int stand_up(seat *s) {
    atomic_store(&s->is_taken, 0);
    return 0;
}

void ranks_meet(ranks *r) { pthread_barrier_wait(&r->meeting); }

static int broadcast(void *ctx, void *buf, uint64_t bytes, int root) {
    seat *s = sit_down(ctx);
    for (uint64_t at = 0, part; at < bytes; at += part) {
        part = bytes - at < SLOT_BYTES ? bytes - at : SLOT_BYTES;
        if (s->rank == root) memcpy(s->c->slots[root], (char *)buf + at, part);
        meet(s);
        if (s->rank != root) memcpy((char *)buf + at, s->c->slots[root], part);
        meet(s);
    }
    return stand_up(s);
}

static uint64_t join(uint64_t a, uint64_t b, dcp_reduce op) {
    if (op == DCP_REDUCE_MAX) return a > b ? a : b;
    if (op == DCP_REDUCE_MIN) return a < b ? a : b;
    return op == DCP_REDUCE_SUM ? a + b : a ^ b;
}

static int allreduce(void *ctx, uint64_t *buf, uint64_t count, dcp_reduce op) {
    seat *s = sit_down(ctx);
    const uint64_t most = SLOT_BYTES / 8;
    for (uint64_t at = 0, part; at < count; at += part) {
        part = count - at < most ? count - at : most;
        memcpy(s->c->slots[s->rank], buf + at, part * 8);
        meet(s);
        for (int r = 0; r < s->r->n; r++)
            for (uint64_t i = 0; i < part && r != s->rank; i++)
                buf[at + i] = join(buf[at + i], ((uint64_t *)s->c->slots[r])[i], op);
        meet(s);
    }
    return stand_up(s);
}

static int gather(void *ctx, const void *send, uint64_t bytes, void *recv, int root) {
    seat *s = sit_down(ctx);
    for (uint64_t at = 0, part; at < bytes; at += part) {
        part = bytes - at < SLOT_BYTES ? bytes - at : SLOT_BYTES;
        memcpy(s->c->slots[s->rank], (const char *)send + at, part);
        meet(s);
        for (int r = 0; r < s->r->n && s->rank == root; r++)
            memcpy((char *)recv + (uint64_t)r * bytes + at, s->c->slots[r], part);
        meet(s);
    }
    return stand_up(s);
}

static int alltoall(void *ctx, const void *send, const uint64_t *send_bytes, void *recv,
                    const uint64_t *recv_bytes) {
    seat *s = sit_down(ctx);
    uint64_t total = 0;
    char *to = recv;
    for (int r = 0; r < s->r->n; r++) total += s->c->sent[s->rank][r] = send_bytes[r];
    if (total > SLOT_BYTES) stop("more is sent than there is room for");
    if (total) memcpy(s->c->slots[s->rank], send, total);
    meet(s);
    for (int r = 0; r < s->r->n; to += recv_bytes[r++]) {
        uint64_t at = 0;
        for (int k = 0; k < s->rank; k++) at += s->c->sent[r][k];
        if (s->c->sent[r][s->rank] != recv_bytes[r]) stop("what is sent is not what is expected");
        if (recv_bytes[r]) memcpy(to, s->c->slots[r] + at, recv_bytes[r]);
    }
    meet(s);
    return stand_up(s);
}

static int barrier(void *ctx) {
    seat *s = sit_down(ctx);
    meet(s);
    return stand_up(s);
}

static seat *take_seat(ranks *r, int which, int rank) {
    seat *s = malloc(sizeof *s);
    if (!s || which >= CHANNELS) stop("too many communicators");
    *s = (seat){.r = r, .c = &r->channels[which], .rank = rank};
    return s;
}

static int duplicate(void *ctx, void **out) {
    seat *s = ctx;
    int which = s->rank ? 0 : __atomic_fetch_add(&s->r->used, 1, __ATOMIC_RELAXED);
    broadcast(s, &which, sizeof which, 0);
    *out = take_seat(s->r, which, s->rank);
    return 0;
}

static int host_of(void *ctx, int rank) {
    (void)ctx;
    return rank;
}

static void prepare_meeting(pthread_barrier_t *meeting, int n) {
    pthread_barrierattr_t shared;
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(meeting, &shared, (unsigned)n);
}

ranks *ranks_make(int n, size_t bytes) {
    ranks *r = mmap(NULL, sizeof *r + bytes, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (r == MAP_FAILED || n < 1 || n > RANKS_MOST) stop("no memory");
    r->n = n;
    r->bytes = bytes;
    return r;
}

void *ranks_shared(ranks *r) { return r->shared; }

void ranks_free(ranks *r) { munmap(r, sizeof *r + r->bytes); }

/* Makes the meeting again, because killed ranks may have been there. */
static void begin(ranks *r) {
    r->used = 1;
    prepare_meeting(&r->meeting, r->n);
    for (int i = 0; i < CHANNELS; i++) prepare_meeting(&r->channels[i].meeting, r->n);
}

typedef struct part {
    ranks *r;
    int rank;
    ranks_main body;
    void *ctx;
} part;

static void *play(void *ctx) {
    const part *p = ctx;
    dcp_comm *comm = NULL;
    dcp_error err;
    dcp_comm_ops ops = DCP_COMM_OPS_INIT;
    ops.broadcast = broadcast, ops.allreduce = allreduce, ops.gather = gather;
    ops.alltoall = alltoall, ops.barrier = barrier;
    ops.duplicate = duplicate, ops.free = free, ops.threads = 1, ops.host_of = host_of;
    seat *s = take_seat(p->r, 0, p->rank);
    if (dcp_comm_from_ops(&ops, s, p->rank, p->r->n, &comm, &err)) stop(err.message);
    p->body(p->rank, comm, p->ctx);
    dcp_comm_destroy(comm);
    free(s);
    return NULL;
}

void ranks_run_threads(ranks *r, ranks_main body, void *ctx) {
    pthread_t threads[RANKS_MOST];
    part parts[RANKS_MOST];
    begin(r);
    for (int i = 0; i < r->n; i++) {
        parts[i] = (part){r, i, body, ctx};
        if (pthread_create(&threads[i], NULL, play, &parts[i])) stop("no thread");
    }
    for (int i = 0; i < r->n; i++) pthread_join(threads[i], NULL);
}

int ranks_run_processes(ranks *r, ranks_main body, void *ctx) {
    pid_t children[RANKS_MOST];
    int killed = 0, failed = 0, state;
    begin(r);
    fflush(NULL);
    for (int i = 0; i < r->n; i++) {
        children[i] = fork();
        if (children[i] < 0) stop("no process");
        if (children[i]) continue;
        play(&(part){r, i, body, ctx});
        fflush(NULL);
        _exit(0);
    }
    for (int left = r->n; left; left--) {
        const pid_t ended = wait(&state);
        killed |= WIFSIGNALED(state) && WTERMSIG(state) == SIGKILL;
        failed |= state && !(WIFSIGNALED(state) && WTERMSIG(state) == SIGKILL);
        for (int i = 0; i < r->n; i++)
            if (children[i] == ended) children[i] = 0;
        for (int i = 0; i < r->n && (killed || failed); i++)
            if (children[i] > 0) kill(children[i], SIGKILL);
    }
    if (failed) exit(1);
    return killed;
}
