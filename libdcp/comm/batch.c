/* How a rank waits. Every few milliseconds a waiting rank checks for failures that others report.
 * Every 100 ms it checks whether the processes of the ranks that it waits for still run.
 *
 * A rank that finds that a process has ended reports it, since others may be waiting for ranks that
 * have given up. Every rank that receives a report passes it on. Reports go to the ranks that are
 * 1, 2, 4 and so on above the reporting rank. So all ranks learn of the failure even if one of them
 * ends before it has passed the report on, and each rank opens only a few connections.
 *
 * If a wait exceeds the limit, the awaited rank may itself be waiting for another rank. So this
 * rank sends the awaited rank a question: which rank are you waiting for? Then it sends the same
 * question to the rank that the answer names, and so on. The last rank asked is the late one: it
 * does not answer, or its answer names no other rank.
 *
 * After a failure, receives are cancelled. A receive that has already matched a message can't be
 * cancelled; it is waited for briefly. A live sender completes it in that time; a dead one has
 * nothing more to send. */
#include "comm/batch.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PAUSE_NS 20000 /* the first pause */
#define LONG_PAUSE_NS 2000000
#define POLL_NS 10000000     /* how long a rank polls before it sleeps, if it need not yield */
#define POLLS 200            /* polls before the clock is read for the first time */
#define HEAR_NS 5000000      /* between two checks for reports from others */
#define LAST_NS 100000000    /* after this time, everything that an ended rank sent has arrived */
#define LOST_NS 500000000    /* after this time, others have also passed on what that rank sent */
#define ANSWER_NS 1000000000 /* after this time, a waiting rank has answered a question */
#define GIVE_UP_NS 200000000 /* how long to wait for requests that can't be cancelled */

enum { DATA_TAG = 1, FAILURE_TAG, QUESTION_TAG, ANSWER_TAG, OWN_TAG };

/* A question or its answer: the number that the asker gave the question, and, in the answer, the
 * rank for which the answering rank waits. */
typedef struct batch_question {
    int32_t number, rank;
} batch_question;

/* The state of one wait. */
typedef struct waiting {
    comm_patience patience;
    comm_search search;
    int64_t now, began, received_at;
    int64_t last; /* when the awaited rank `ended` was found dead; 0: none was found dead */
    int64_t lost; /* when a rank that is not awaited here was found dead; 0: none was */
    int ended;
    int open; /* how many requests were not complete at the last check */
    long pause;
} waiting;

static void add_request(comm_batch *b, int code, int peer, bool receives) {
    if (code != MPI_SUCCESS) b->code = code;
    if (code != MPI_SUCCESS) return;
    assert(b->n < 2 * COMM_BATCH_PEERS);
    b->peers[b->n] = peer;
    b->receives[b->n++] = receives;
}

void comm_batch_send(comm_batch *b, const void *from, uint64_t bytes, int peer) {
    const int tag = b->has_own_tag ? OWN_TAG : DATA_TAG;
    if (b->pairs->ranks) peer = b->pairs->ranks[peer];
    if (b->code) return;
    add_request(
        b, MPI_Isend(from, (int)bytes, MPI_BYTE, peer, tag, b->pairs->comm, &b->requests[b->n]),
        peer, false);
}

void comm_batch_receive(comm_batch *b, void *to, uint64_t bytes, int peer) {
    const int tag = b->has_own_tag ? OWN_TAG : DATA_TAG;
    if (b->pairs->ranks) peer = b->pairs->ranks[peer];
    if (b->code) return;
    add_request(b,
                MPI_Irecv(to, (int)bytes, MPI_BYTE, peer, tag, b->pairs->comm, &b->requests[b->n]),
                peer, true);
}

/* Sends a few bytes to a rank that may never receive them. If MPI has not sent them when this
 * function returns, MPI may still read the copy of these bytes; in that case the copy is never
 * freed. */
static void send_note(MPI_Comm comm, const void *note, size_t bytes, int tag, int to) {
    MPI_Request request;
    void *copy = malloc(bytes);
    int done = 0;
    if (!copy) return;
    memcpy(copy, note, bytes);
    if (MPI_Isend(copy, (int)bytes, MPI_BYTE, to, tag, comm, &request) != MPI_SUCCESS ||
        MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done)
        free(copy);
}

/* Receives a note if one has arrived. Returns its sender, or -1. *code becomes MPI's code. */
static int take_note(MPI_Comm comm, void *note, size_t bytes, int tag, int *code) {
    MPI_Status status;
    int found = 0;
    *code = MPI_Iprobe(MPI_ANY_SOURCE, tag, comm, &found, &status);
    if (*code != MPI_SUCCESS || !found) return -1;
    *code = MPI_Recv(note, (int)bytes, MPI_BYTE, status.MPI_SOURCE, tag, comm, MPI_STATUS_IGNORE);
    return *code == MPI_SUCCESS ? status.MPI_SOURCE : -1;
}

/* Returns true if all requests complete within GIVE_UP_NS. */
static int end_soon(MPI_Request *requests, int n) {
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    int done = 0;
    for (int64_t end = comm_watch_clock() + GIVE_UP_NS; !done && comm_watch_clock() < end;) {
        if (MPI_Testall(n, requests, &done, MPI_STATUSES_IGNORE) != MPI_SUCCESS) break;
        if (!done) nanosleep(&pause, NULL);
    }
    return done;
}

/* Passes the failure on, and waits briefly until the notes have left: this rank may end soon, and
 * notes that have not left by then are lost. */
static void forward_failure(comm_pairs *p) {
    MPI_Request notes[8 * sizeof(int)];
    int n = 0;
    if (p->watch->shared || p->first == MPI_COMM_NULL) return;
    p->reported = comm_watch_failure(p->watch);
    for (int64_t d = 1; d < p->size; d *= 2) {
        const int to = (int)((p->rank + d) % p->size);
        if (to == p->reported.rank && p->reported.why == COMM_HAS_ENDED) continue;
        if (MPI_Isend(&p->reported, sizeof p->reported, MPI_BYTE, to, FAILURE_TAG, p->first,
                      &notes[n]) == MPI_SUCCESS)
            n++;
    }
    end_soon(notes, n);
}

void comm_batch_break(comm_pairs *p, comm_cause why, int code, int rank) {
    if (p->whole) p = p->whole;
    if (comm_watch_is_broken(p->watch)) return;
    comm_watch_break(p->watch, why, code, rank);
    forward_failure(p);
}

/* If several threads wait at the same time, one of them receives for all of them. */
bool comm_batch_receive_failures(comm_pairs *p) {
    comm_failure reported = {0};
    comm_watch *w = p->watch;
    int code = MPI_SUCCESS;
    const int64_t now = comm_watch_clock();
    if (p->whole) p = p->whole;
    if (now - p->received_at < HEAR_NS) return comm_watch_is_broken(w);
    p->received_at = now;
    if (!comm_watch_is_broken(w) && p->first != MPI_COMM_NULL &&
        !atomic_flag_test_and_set(&w->is_receiving)) {
        if (take_note(p->first, &reported, sizeof reported, FAILURE_TAG, &code) >= 0)
            comm_batch_break(p, (comm_cause)reported.why, reported.code, reported.rank);
        atomic_flag_clear(&w->is_receiving);
        if (code != MPI_SUCCESS) comm_batch_break(p, COMM_FAILED, code, p->rank);
    }
    return comm_watch_is_broken(w);
}

static void give_up(comm_batch *b) {
    for (int i = 0; i < b->n; i++)
        if (b->receives[i] && b->requests[i] != MPI_REQUEST_NULL) MPI_Cancel(&b->requests[i]);
    end_soon(b->requests, b->n);
    b->n = 0;
}

/* Returns the index of a request that is not complete, or -1. Unless `of` is -1, considers only
 * messages to and from rank `of`. */
static int find_open(comm_batch *b, int of) {
    for (int i = 0, done; i < b->n; i++) {
        if (of >= 0 && b->peers[i] != of) continue;
        done = 1;
        if (b->requests[i] != MPI_REQUEST_NULL)
            MPI_Request_get_status(b->requests[i], &done, MPI_STATUS_IGNORE);
        if (!done) return i;
    }
    return -1;
}

void comm_batch_answer(comm_pairs *p, int awaited) {
    batch_question q;
    for (int code, from; (from = take_note(p->comm, &q, sizeof q, QUESTION_TAG, &code)) >= 0;) {
        q.rank = awaited;
        send_note(p->comm, &q, sizeof q, ANSWER_TAG, from);
    }
}

static void query_rank(comm_pairs *p, comm_search *s, int rank) {
    const batch_question q = {++p->questions, -1};
    s->suspect = rank;
    s->queried_at = comm_watch_clock();
    send_note(p->comm, &q, sizeof q, QUESTION_TAG, rank);
}

void comm_batch_find_late(comm_pairs *p, comm_search *s, int awaited) {
    batch_question q;
    int code;
    if (awaited < 0 || p->comm == MPI_COMM_NULL) {
        comm_batch_break(p, COMM_IS_LATE, 0, -1);
        return;
    }
    if (!s->queried_at) query_rank(p, s, awaited);
    while (take_note(p->comm, &q, sizeof q, ANSWER_TAG, &code) >= 0)
        if (q.number == p->questions && q.rank >= 0 && q.rank != p->rank) query_rank(p, s, q.rank);
    if (comm_watch_clock() - s->queried_at > ANSWER_NS)
        comm_batch_break(p, COMM_IS_LATE, 0, s->suspect);
}

/* Checks all ranks, including those that are not awaited here. An awaited rank may itself wait for
 * a rank that has ended. If these two ranks are on different machines, the awaited rank cannot
 * notice the end, but this rank might. */
static void look_at_others(comm_batch *b, waiting *w) {
    int which;
    if (w->last || !comm_watch_has_ended(b->pairs->watch, -1, &which)) return;
    if (!w->lost) w->lost = w->now;
    if (w->now - w->lost > LOST_NS) comm_batch_break(b->pairs, COMM_HAS_ENDED, 0, which);
}

/* If requests have completed since the last check, the time limit starts anew. */
static void note_progress(comm_batch *b, waiting *w) {
    int open = 0;
    for (int i = 0, done; i < b->n; i++, open += !done) {
        done = 1;
        if (b->requests[i] != MPI_REQUEST_NULL)
            MPI_Request_get_status(b->requests[i], &done, MPI_STATUS_IGNORE);
    }
    if (open == w->open) return;
    w->open = open;
    w->patience.began = w->now;
    w->lost = w->search.queried_at = 0;
}

/* Checks the processes of the ranks whose requests are not complete. */
static void look_at_peers(comm_batch *b, waiting *w) {
    for (int i = 0, done, which; i < b->n && !w->last; i++) {
        done = 1;
        if (b->requests[i] != MPI_REQUEST_NULL)
            MPI_Request_get_status(b->requests[i], &done, MPI_STATUS_IGNORE);
        if (done || !comm_watch_has_ended(b->pairs->watch, b->peers[i], &which)) continue;
        w->last = w->now;
        w->ended = which;
    }
}

/* Called when everything that the ended rank sent has had time to arrive. Breaks the watch if a
 * request still waits for that rank, or for all ranks. */
static void end_last(comm_batch *b, waiting *w) {
    const int i = find_open(b, -1);
    const bool of_all = i >= 0 && b->peers[i] < 0;
    w->last = 0;
    if (i >= 0 && (of_all || find_open(b, w->ended) >= 0))
        comm_batch_break(b->pairs, COMM_HAS_ENDED, 0, w->ended);
}

static void look_around(comm_batch *b, waiting *w) {
    comm_pairs *p = b->pairs;
    const comm_waiting state = comm_watch_wait(p->watch, &w->patience);
    if (state == COMM_BROKEN) return;
    const int open = find_open(b, -1), awaited = open < 0 ? -1 : b->peers[open];
    if (comm_batch_receive_failures(p) || open < 0) return;
    if (p->comm != MPI_COMM_NULL) comm_batch_answer(p, awaited);
    if (w->last && w->now - w->last > LAST_NS) end_last(b, w);
    if (state == COMM_CHECK) {
        note_progress(b, w);
        look_at_peers(b, w);
        look_at_others(b, w);
    }
    if (state == COMM_TIMED_OUT && !w->last) comm_batch_find_late(p, &w->search, awaited);
}

static void pause_wait(const comm_pairs *p, waiting *w) {
    const struct timespec t = {.tv_nsec = w->pause};
    if (!p->yields && w->now - w->began < POLL_NS) return;
    nanosleep(&t, NULL);
    if (w->pause < LONG_PAUSE_NS && p->yields) w->pause += w->pause / 2;
}

static void wait_step(comm_batch *b, waiting *w) {
    w->now = comm_watch_clock();
    if (!w->began) w->began = w->received_at = w->now;
    pause_wait(b->pairs, w);
    if (w->now - w->received_at < HEAR_NS) return;
    w->received_at = w->now;
    look_around(b, w);
}

static int finish_batch(comm_batch *b) {
    waiting w = {.pause = PAUSE_NS, .open = b->n};
    for (unsigned tries = 0;; tries++) {
        int done = 0;
        if (!b->code) b->code = MPI_Testall(b->n, b->requests, &done, MPI_STATUSES_IGNORE);
        if (b->code) comm_batch_break(b->pairs, COMM_FAILED, b->code, b->pairs->rank);
        if (done && !b->code) break;
        if (!b->code && (b->pairs->yields || tries > POLLS)) wait_step(b, &w);
        if (!comm_watch_is_broken(b->pairs->watch)) continue;
        give_up(b);
        return -1;
    }
    b->n = 0;
    return 0;
}

int comm_batch_finish(comm_batch *b) {
    comm_pairs *some = b->pairs;
    if (some->whole) b->pairs = some->whole;
    const int failed = finish_batch(b);
    b->pairs = some;
    return failed;
}

int comm_batch_finish_request(comm_pairs *pairs, int code, MPI_Request request) {
    comm_batch b = {.pairs = pairs, .n = 1, .code = code, .requests = {request}, .peers = {-1}};
    return comm_batch_finish(&b);
}
