/* Votes: in one all-reduce, the ranks agree on a status, and compare or combine their values.
 *
 *     comm_vote v = {0};
 *     comm_vote_same(&v, "the step", step); // DCP_ERR_MISMATCH unless all ranks have this value
 *     comm_vote_max(&v, &most, 1);          // becomes the largest of all ranks' values
 *     comm_vote_all(&v, &unchanged);        // becomes true if it is true on all ranks
 *     status = comm_vote_run(comm, &v, status, err);
 *
 * All ranks, including those that have already failed, add the same kinds of values in the same
 * order. comm_vote_run reads the values that the pointers point to, unless this rank has failed,
 * and replaces them with the outcome, unless any rank has failed. */
#pragma once

#include <stdbool.h>

#include "comm/comm.h"

enum { COMM_VOTES = 24 };

typedef enum comm_vote_kind {
    COMM_VOTE_SAME, /* like EQUAL, uses two words: the value and its complement */
    COMM_VOTE_EQUAL,
    COMM_VOTE_MIN,
    COMM_VOTE_MAX,
    COMM_VOTE_ALL,
    COMM_VOTE_ANY
} comm_vote_kind;

typedef struct comm_vote_item {
    comm_vote_kind kind;
    bool is_hash;     /* SAME: the value means nothing to people, so the message leaves it out */
    bool is_left_out; /* EQUAL, MIN: this rank's value does not count */
    bool differs;     /* SAME: set by the run if ranks differ */
    const char *name; /* SAME */
    uint64_t own;     /* SAME */
    uint64_t *values; /* EQUAL: one; MIN, MAX: n */
    size_t n;         /* words */
    bool *flag;       /* EQUAL, ALL, ANY */
} comm_vote_item;

/* All zero: nothing to vote on. Its members are for comm/vote.c alone. */
typedef struct comm_vote {
    comm_vote_item items[COMM_VOTES];
    size_t n;
    size_t checked; /* how many items comm_vote_run compares if `is_split`; else all of them */
    bool is_split;
} comm_vote;

/* All ranks must have the same value. Uses two of the COMM_MIN_VALUES words of a vote; `name`
 * must outlive the vote. */
void comm_vote_same(comm_vote *v, const char *name, uint64_t value);
/* Like comm_vote_same, for a checksum, which the message does not print. */
void comm_vote_same_hash(comm_vote *v, const char *name, uint64_t value);
/* comm_vote_run does not compare the values that are added after this call; comm_vote_check
 * compares them later. */
void comm_vote_split(comm_vote *v);

/* Each of the n values becomes the smallest or the largest of all ranks' values. Uses a word per
 * value. */
void comm_vote_min(comm_vote *v, uint64_t *values, size_t n);
void comm_vote_max(comm_vote *v, uint64_t *values, size_t n);
/* The values become those of the rank that sets `decides`. If several ranks set it, each value
 * becomes the smallest of their values. */
void comm_vote_from(comm_vote *v, bool decides, uint64_t *values, size_t n);

/* The flag becomes true if it is true on all ranks (comm_vote_all) or on any rank (comm_vote_any).
 * Uses one word. */
void comm_vote_all(comm_vote *v, bool *flag);
void comm_vote_any(comm_vote *v, bool *flag);

/* *is_equal becomes true if all ranks that take part have the same value; *value becomes the
 * smallest of their values. Uses two words. At least one rank must take part. A value must not be
 * UINT64_MAX, unless all ranks have that value. */
void comm_vote_equal(comm_vote *v, bool takes_part, uint64_t *value, bool *is_equal);

/* Collective: comm_agree of `status`, and the vote, in one all-reduce. Returns DCP_ERR_MISMATCH if
 * a value that should be the same is not; the message says which ranks have which value. */
int comm_vote_run(dcp_comm *comm, comm_vote *v, int status, dcp_error *err);
/* Collective, after comm_vote_run has returned DCP_OK: compares what comm_vote_split postponed. No
 * rank waits for another one unless a value differs. */
int comm_vote_check(dcp_comm *comm, const comm_vote *v, dcp_error *err);

/* Messages that say which ranks differ. */

/* Prints a rank's record; an empty text leaves the rank out of the message. */
typedef void (*comm_describe)(const unsigned char *record, char *text, size_t size);

/* Collective; called when all ranks know that they disagree. Returns DCP_ERR_MISMATCH on all ranks,
 * with the message "<what>: <record> on ranks 0-2, <another> on rank 3". Without `describe`, the
 * records are called "one" and "another". */
int comm_disagree(dcp_comm *comm, const char *what, const void *record, size_t bytes,
                  comm_describe describe, dcp_error *err);

/* Writes "rank 3" or "ranks 0-2, 5" for the ranks marked in `member`. */
void comm_ranks_print(const unsigned char *member, int size, char *text, size_t bytes);
