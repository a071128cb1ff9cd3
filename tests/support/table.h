/* A launcher without MPI: the ranks are forked processes that communicate through shared memory,
 * with a table that has everything a caller's may have. A context sends through a channel; a
 * duplicate gets a channel of its own. */
#ifndef TESTS_TABLE_H
#define TESTS_TABLE_H

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dcp/comm.h"

enum { TABLE_RANKS = 3, TABLE_CHANNELS = 64, TABLE_PART = 1 << 14 };

/* A rank whose check fails ends, and its parent ends the others. */
#define NEED(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) table_failed(__FILE__, __LINE__, #condition);                            \
    } while (0)

#define SUCCEEDS(call)                                                                             \
    do {                                                                                           \
        dcp_error succeeds_error = {0}, *err = &succeeds_error;                                    \
        if ((call) != DCP_OK) table_failed(__FILE__, __LINE__, succeeds_error.message);            \
    } while (0)

static inline void table_failed(const char *file, int line, const char *what) {
    fprintf(stderr, "%s:%d: process %ld: not true: %s\n", file, line, (long)getpid(), what);
    _exit(1);
}

/* A part of a message from one rank to another. */
typedef struct table_box {
    atomic_int is_full;
    unsigned char part[TABLE_PART];
} table_box;

typedef struct table_channel {
    pthread_barrier_t barrier;
    unsigned char shown[TABLE_RANKS][TABLE_PART];
    table_box boxes[TABLE_RANKS][TABLE_RANKS]; /* [from][to] */
} table_channel;

/* Shared by all ranks. */
typedef struct table_world {
    atomic_int used; /* the number of channels in use */
    table_channel channels[TABLE_CHANNELS];
} table_world;

/* A rank's end of a channel. */
typedef struct table_seat {
    table_world *world;
    table_channel *channel;
    int rank;
    atomic_flag is_in_use;
    int is_duplicate;
} table_seat;

/* What a rank has requested from its table, and what is to fail. */
static struct {
    atomic_int made, freed;
    atomic_int fails_at; /* the number of the duplicate that fails on this rank; 0: none */
    atomic_int exchanges;
    atomic_int calls_left; /* calls through duplicates until they fail; negative: no limit */
} table_tally = {.calls_left = -1};

static inline int table_begin(table_seat *seat) {
    NEED(!atomic_flag_test_and_set(&seat->is_in_use)); /* one thread at a time */
    if (!seat->is_duplicate || atomic_load(&table_tally.calls_left) < 0) return 0;
    if (atomic_fetch_sub(&table_tally.calls_left, 1) > 0) return 0;
    atomic_store(&table_tally.calls_left, 0);
    atomic_flag_clear(&seat->is_in_use);
    return 42;
}

static inline int table_end(table_seat *seat) {
    atomic_flag_clear(&seat->is_in_use);
    return 0;
}

static inline void table_meet(table_seat *seat) { pthread_barrier_wait(&seat->channel->barrier); }

static inline uint64_t table_part(uint64_t left) { return left < TABLE_PART ? left : TABLE_PART; }

static inline void table_spread(table_seat *seat, void *buf, uint64_t bytes, int root) {
    for (uint64_t done = 0, n; done < bytes; done += n) {
        unsigned char *at = (unsigned char *)buf + done, *shown = seat->channel->shown[root];
        n = table_part(bytes - done);
        if (seat->rank == root) memcpy(shown, at, n);
        table_meet(seat);
        if (seat->rank != root) memcpy(at, shown, n);
        table_meet(seat);
    }
}

static inline int table_broadcast(void *ctx, void *buf, uint64_t bytes, int root) {
    if (table_begin(ctx)) return 42;
    table_spread(ctx, buf, bytes, root);
    return table_end(ctx);
}

static inline uint64_t table_reduced(uint64_t a, uint64_t b, dcp_reduce op) {
    if (op == DCP_REDUCE_MAX) return a > b ? a : b;
    if (op == DCP_REDUCE_MIN) return a < b ? a : b;
    return op == DCP_REDUCE_SUM ? a + b : a ^ b;
}

static inline int table_allreduce(void *ctx, uint64_t *buf, uint64_t count, dcp_reduce op) {
    table_seat *seat = ctx;
    if (table_begin(ctx)) return 42;
    for (uint64_t done = 0, n; done < count; done += n) {
        n = table_part((count - done) * sizeof *buf) / sizeof *buf;
        memcpy(seat->channel->shown[seat->rank], buf + done, n * sizeof *buf);
        table_meet(seat);
        for (int r = 0; r < TABLE_RANKS; r++) {
            const uint64_t *theirs = (const uint64_t *)(const void *)seat->channel->shown[r];
            for (uint64_t i = 0; i < n && r != seat->rank; i++)
                buf[done + i] = table_reduced(buf[done + i], theirs[i], op);
        }
        table_meet(seat);
    }
    return table_end(ctx);
}

static inline int table_gather(void *ctx, const void *send, uint64_t bytes, void *recv, int root) {
    table_seat *seat = ctx;
    if (table_begin(ctx)) return 42;
    for (uint64_t done = 0, n; done < bytes; done += n) {
        n = table_part(bytes - done);
        memcpy(seat->channel->shown[seat->rank], (const unsigned char *)send + done, n);
        table_meet(seat);
        for (int r = 0; r < TABLE_RANKS && seat->rank == root; r++)
            memcpy((unsigned char *)recv + (uint64_t)r * bytes + done, seat->channel->shown[r], n);
        table_meet(seat);
    }
    return table_end(ctx);
}

/* The ranks broadcast everything that they send, one after the other. */
static inline int table_alltoall(void *ctx, const void *send, const uint64_t *send_bytes,
                                 void *recv, const uint64_t *recv_bytes) {
    table_seat *seat = ctx;
    unsigned char *to = recv;
    if (table_begin(ctx)) return 42;
    for (int root = 0; root < TABLE_RANKS; to += recv_bytes[root++]) {
        uint64_t sizes[TABLE_RANKS], bytes = 0, mine = 0;
        memcpy(sizes, send_bytes, sizeof sizes);
        table_spread(seat, sizes, sizeof sizes, root);
        for (int r = 0; r < TABLE_RANKS; bytes += sizes[r++])
            if (r == seat->rank) mine = bytes;
        unsigned char *all = malloc(bytes + 1);
        NEED(all && sizes[seat->rank] == recv_bytes[root]);
        if (seat->rank == root && bytes) memcpy(all, send, bytes);
        table_spread(seat, all, bytes, root);
        if (recv_bytes[root]) memcpy(to, all + mine, recv_bytes[root]);
        free(all);
    }
    return table_end(ctx);
}

static inline int table_barrier(void *ctx) {
    if (table_begin(ctx)) return 42;
    table_meet(ctx);
    return table_end(ctx);
}

/* Fills an empty box, or empties a full one. Returns true if that was the last part. */
static inline int table_pass(table_box *box, const dcp_comm_message *m, int out, uint64_t *done) {
    const uint64_t n = table_part(m->bytes - *done);
    unsigned char *at = (unsigned char *)m->data + *done;
    if (atomic_load(&box->is_full) == out) return 0;
    memcpy(out ? box->part : at, out ? at : box->part, n);
    atomic_store(&box->is_full, out);
    *done += n;
    return *done == m->bytes;
}

static inline int table_exchange(void *ctx, const dcp_comm_message *send, uint64_t sends,
                                 const dcp_comm_message *receive, uint64_t receives) {
    table_seat *seat = ctx;
    uint64_t left = 0, sent[TABLE_RANKS] = {0}, received[TABLE_RANKS] = {0};
    NEED(!atomic_flag_test_and_set(&seat->is_in_use) && sends < TABLE_RANKS);
    NEED(receives < TABLE_RANKS);
    atomic_fetch_add(&table_tally.exchanges, 1);
    for (uint64_t i = 0; i < sends; i++) left += send[i].bytes > 0;
    for (uint64_t i = 0; i < receives; i++) left += receive[i].bytes > 0;
    for (; left > 0; sched_yield()) {
        for (uint64_t i = 0; i < sends; i++)
            if (sent[i] < send[i].bytes)
                left -= (uint64_t)table_pass(&seat->channel->boxes[seat->rank][send[i].peer],
                                             &send[i], 1, &sent[i]);
        for (uint64_t i = 0; i < receives; i++)
            if (received[i] < receive[i].bytes)
                left -= (uint64_t)table_pass(&seat->channel->boxes[receive[i].peer][seat->rank],
                                             &receive[i], 0, &received[i]);
    }
    return table_end(ctx);
}

static inline table_seat *table_sit(table_world *world, int channel, int rank) {
    table_seat *seat = calloc(1, sizeof *seat);
    NEED(seat && channel < TABLE_CHANNELS);
    *seat = (table_seat){.world = world, .channel = &world->channels[channel], .rank = rank};
    atomic_flag_clear(&seat->is_in_use);
    seat->is_duplicate = channel != 0;
    return seat;
}

static inline int table_duplicate(void *ctx, void **out_ctx) {
    table_seat *seat = ctx;
    int channel = seat->rank ? 0 : atomic_fetch_add(&seat->world->used, 1);
    if (table_broadcast(ctx, &channel, sizeof channel, 0)) return 42;
    if (atomic_load(&table_tally.fails_at) && !atomic_fetch_sub(&table_tally.fails_at, 1) - 1)
        return 13;
    atomic_fetch_add(&table_tally.made, 1);
    *out_ctx = table_sit(seat->world, channel, seat->rank);
    return 0;
}

static inline void table_free(void *ctx) {
    table_seat *seat = ctx;
    NEED(seat->is_duplicate && !atomic_flag_test_and_set(&seat->is_in_use));
    atomic_fetch_add(&table_tally.freed, 1);
    free(seat);
}

#define TABLE_FUNCTIONS                                                                            \
    .size = sizeof(dcp_comm_ops), .broadcast = table_broadcast, .allreduce = table_allreduce,      \
    .gather = table_gather, .alltoall = table_alltoall, .barrier = table_barrier,                  \
    .duplicate = table_duplicate, .free = table_free, .threads = 1

static const dcp_comm_ops table_functions = {TABLE_FUNCTIONS};

/* These functions plus exchange. */
static const dcp_comm_ops table_with_exchange = {TABLE_FUNCTIONS, .exchange = table_exchange};

static inline table_world *table_world_make(void) {
    table_world *world =
        mmap(NULL, sizeof *world, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_t shared;
    NEED(world != MAP_FAILED);
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    for (int i = 0; i < TABLE_CHANNELS; i++)
        NEED(!pthread_barrier_init(&world->channels[i].barrier, &shared, TABLE_RANKS));
    return world;
}

/* Runs `run` in a process for each rank, over one channel. Returns 0 if all of them succeed. If one
 * fails, the others are ended. */
static inline int table_launch(void (*run)(table_seat *seat, void *arg), void *arg) {
    table_world *world = table_world_make();
    pid_t ranks[TABLE_RANKS];
    int failed = 0;
    atomic_store(&world->used, 1);
    for (int r = 0; r < TABLE_RANKS; r++) {
        ranks[r] = fork();
        NEED(ranks[r] >= 0);
        if (ranks[r]) continue;
        table_seat *seat = table_sit(world, 0, r);
        run(seat, arg);
        free(seat);
        exit(0);
    }
    for (int left = TABLE_RANKS; left > 0; left--) {
        int status;
        const pid_t ended = waitpid(-1, &status, 0);
        failed |= status != 0;
        for (int r = 0; r < TABLE_RANKS; r++) {
            if (ranks[r] == ended) ranks[r] = 0;
            if (ranks[r] && failed) kill(ranks[r], SIGKILL);
        }
    }
    munmap(world, sizeof *world);
    return failed;
}

#endif
