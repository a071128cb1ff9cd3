/* Messages under way at once between this rank and others, and waiting for all of them. */
#pragma once

#include <mpi.h>
#include <stdint.h>

#include "comm/process.h"
#include "dcp/comm.h"

typedef struct comm_pairs {
    MPI_Comm comm, first; /* `first` is that of the communicator that this one duplicates */
    comm_watch *watch;
    uint64_t *spare; /* room for a part of a reduction */
    int rank, size;
    struct comm_pairs *whole; /* of all ranks, where these are some of them; NULL: these are all */
    const int *ranks;         /* their numbers among all; NULL: their own */
    int yields; /* it works beside a thread that computes: while it waits, it leaves the core to
                   that */
    int32_t questions; /* asked so far */
    int64_t heard;     /* when it heard last what others tell, in ns */
    comm_failure told; /* to others, of whom some may take it later */
} comm_pairs;

#define COMM_BATCH_PEERS 32 /* sent to, and received from, at once */

typedef struct comm_batch {
    comm_pairs *pairs;
    int is_apart; /* of the collectives' messages, which may go on beside it */
    int n, code;  /* code: of MPI, that one could not be started */
    MPI_Request requests[2 * COMM_BATCH_PEERS];
    int peers[2 * COMM_BATCH_PEERS]; /* -1: not one rank alone */
    int receives[2 * COMM_BATCH_PEERS];
} comm_batch;

void comm_batch_send(comm_batch *batch, const void *from, uint64_t bytes, int peer);
void comm_batch_receive(comm_batch *batch, void *to, uint64_t bytes, int peer);

/* Waits for all. Returns 0, and the batch is empty; or another value once the watch is broken, and
 * what could be cancelled is. */
int comm_batch_finish(comm_batch *batch);

/* Waits for a request of a collective of MPI; `code` is what beginning it returned. Returns 0, or
 * another value once the watch is broken: then the request and its memory are left to MPI, which
 * may still use them. */
int comm_batch_finish_request(comm_pairs *pairs, int code, MPI_Request request);

/* Hears what others tell, some milliseconds after the last time, and tells it on. To be called
 * before a collective and while waiting: another value once the watch is broken. */
int comm_batch_hear(comm_pairs *pairs);

/* A wait for a rank, by something else than messages, that takes longer than the limit. */
typedef struct comm_search {
    int64_t asked; /* 0: nobody was asked yet */
    int suspect;
} comm_search;

/* To be called while waiting for a rank by something else than messages: tells those that ask for
 * whom this one waits. */
void comm_batch_answer(comm_pairs *pairs, int awaited);
/* The same, again and again, once the limit is over: finds the rank that all others wait for, and
 * breaks the watch. `search` is zeroed when the wait begins. */
void comm_batch_find_late(comm_pairs *pairs, comm_search *search, int awaited);

/* Breaks the watch, unless it is, and tells others, who tell it on. */
void comm_batch_break(comm_pairs *pairs, comm_why why, int code, int rank);

/* One step of a reduction. */

static inline void comm_reduce(uint64_t *buf, const uint64_t *other, uint64_t n, dcp_reduce op) {
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
