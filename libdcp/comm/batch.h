/* Several simultaneous messages between this rank and others, and waiting for all of them. */
#pragma once

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

#include "comm/process.h"
#include "dcp/comm.h"

typedef struct comm_pairs {
    MPI_Comm comm, first; /* `first`: for reports of failures, shared by all duplicates */
    comm_watch *watch;
    uint64_t *spare; /* scratch memory for one part of a reduction */
    int rank, size;
    /* If `comm` has only some of the ranks: the comm_pairs of all ranks; else NULL. */
    struct comm_pairs *whole;
    const int *ranks; /* the numbers that the ranks of `comm` have in `whole`; NULL: `comm` has all
                         ranks */
    bool yields; /* a waiting thread sleeps, and so leaves its core to a thread that computes */
    int32_t questions;     /* the number of questions sent so far */
    int64_t received_at;   /* when reports were last received, in ns */
    comm_failure reported; /* the failure that was sent to others; MPI may still read it */
} comm_pairs;

/* The maximum number of ranks to send to, and to receive from, at once. */
#define COMM_BATCH_PEERS 32

typedef struct comm_batch {
    comm_pairs *pairs;
    bool has_own_tag; /* the messages have a tag of their own, since collectives may run at the same
                     time */
    int n, code;      /* code: MPI's error code if a request could not be started */
    MPI_Request requests[2 * COMM_BATCH_PEERS];
    int peers[2 * COMM_BATCH_PEERS]; /* the rank of each request's message; -1: the request belongs
                                        to a collective of all ranks */
    bool receives[2 * COMM_BATCH_PEERS];
} comm_batch;

void comm_batch_send(comm_batch *batch, const void *from, uint64_t bytes, int peer);
void comm_batch_receive(comm_batch *batch, void *to, uint64_t bytes, int peer);

/* Waits for all messages, and empties the batch. Returns 0, or another value once the watch is
 * broken; by then, all receives that could be cancelled have been cancelled. */
int comm_batch_finish(comm_batch *batch);

/* Waits for a request of one of MPI's collectives; `code` is the result of the call that began the
 * request. Returns 0, or another value once the watch is broken: then the request and its memory
 * are left to MPI, which may still use them. */
int comm_batch_finish_request(comm_pairs *pairs, int code, MPI_Request request);

/* At most once every few milliseconds, receives the failures that others report, and passes them
 * on. Call it before a collective and while waiting. Returns true once the watch is broken. */
bool comm_batch_receive_failures(comm_pairs *pairs);

/* The search for the rank that is late, once a wait has exceeded the limit. */
typedef struct comm_search {
    int64_t queried_at; /* when `suspect` was asked, in ns; 0: no rank has been asked yet */
    int suspect;
} comm_search;

/* Answers the ranks that ask which rank this one waits for. Call it while waiting for a rank by
 * means other than messages. */
void comm_batch_answer(comm_pairs *pairs, int awaited);
/* Searches for the rank that all others wait for, and breaks the watch once it is found. Call it
 * repeatedly after a wait has exceeded the limit. `search` is zeroed when the wait begins. */
void comm_batch_find_late(comm_pairs *pairs, comm_search *search, int awaited);

/* Breaks the watch, and reports the failure to other ranks, which pass it on. Does nothing if the
 * watch is already broken. */
void comm_batch_break(comm_pairs *pairs, comm_cause why, int code, int rank);

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
