/* A communicator of many ranks that all run in this process, as fibers: what one sends the others
 * get. Each collective is done by the rank that comes last. What travels is counted. */
#ifndef TESTS_BENCH_SCALE_CROWD_H
#define TESTS_BENCH_SCALE_CROWD_H

#include "comm/comm.h"
#include "counts.h"
#include "dcp/dcp.h"
#include "heap.h"

/* Ranks that do collectives together: all, or those of a host. */
typedef struct crowd_group {
    int first, n;
    int kind, arrived, root, op; /* of the collective under way */
    uint64_t bytes, done;        /* done: collectives so far, by which the others go on */
    comm_areas areas;            /* that they share */
} crowd_group;

/* What a collective has for ranks, until each has taken it as it goes on: so not all have memory
 * for it at the same time. */
typedef struct crowd_result {
    int users;
    uint64_t bytes;
    unsigned char data[];
} crowd_result;

/* A message that its receiver has not taken yet. */
typedef struct crowd_letter {
    int from;
    const void *data;
    uint64_t bytes;
    struct crowd_letter *next;
} crowd_letter;

typedef struct crowd_rank {
    struct crowd *crowd;
    crowd_group *host;
    int rank;
    int moves;            /* it is in an engine */
    comm_areas own_areas; /* where it shares none */
    heap heap;
    double cpu_s, resumed; /* processor time in this operation; when it went on last */
    /* of the collective that it is in */
    const void *send;
    void *receive;
    const uint64_t *send_bytes, *receive_bytes;
    crowd_result *result;  /* NULL: none */
    crowd_letter *letters; /* to it, in the order of their coming */
    size_t sent;           /* letters of its own that were not taken yet */
    uint64_t news;         /* letters that have come, and that were taken */
} crowd_rank;

typedef struct crowd {
    int size, ranks_a_host;
    int shares; /* ranks of a host share memory */
    int clocks; /* processor time is measured, which takes some itself */
    comm_shared shared;
    crowd_rank *ranks;
    crowd_group all, *hosts;
    counts counts;
} crowd;

void crowd_make(crowd *c, int size, int ranks_a_host);
void crowd_free(crowd *c);

/* Runs `run` on all ranks. */
void crowd_run(crowd *c, void (*run)(void *ctx, int rank));
/* The rank that runs; NULL: none does. */
crowd_rank *crowd_now(void);

/* Copies what differs, so that memory stays untouched which nobody fills. */
void crowd_copy_changed(void *to, const void *from, uint64_t bytes);

/* By all ranks: the communicator of the rank that runs. */
dcp_comm *crowd_comm(crowd *c);
/* By all ranks: they meet, and the last one calls fn(c, what). */
void crowd_meet(crowd *c, void (*fn)(crowd *c, int what), int what);

#endif
