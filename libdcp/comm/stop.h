/* Giving up an operation that all ranks work on: each rank is asked for itself, and one that wants
 * it is enough. Ranks that share memory see it there; all others, at the latest, by the operation's
 * next agreement. It costs no collective. */
#pragma once

#include "comm/comm.h"

typedef struct comm_stop {
    int (*asked)(void *ctx); /* the caller's, beside that of the communicator: not 0 to give up;
                                NULL: there is none */
    void *ctx;
    const atomic_int *cancelled; /* not 0: another thread gave up; NULL: none can */
    const char *what, *outcome;  /* for the message: "the save", "nothing is published" */
    const dcp_comm *comm;        /* NULL: of this rank alone */
    uint32_t number;             /* of the operation, among those of the communicator */
    int stopped;                 /* for good */
    int rank;                    /* that gave up */
} comm_stop;

/* One that nobody but the communicator's own function is asked for. Not collective, but begun as by
 * comm_stop_begin. */
comm_stop comm_stop_of(dcp_comm *comm, const char *what, const char *outcome);

/* Not collective, though all ranks begin their operations on `comm` in the same order. */
void comm_stop_begin(comm_stop *stop, dcp_comm *comm);

/* DCP_ERR_CANCELLED where this rank is to give up, or is seen to have to. By the thread that works,
 * every few MiB. `stop` may be NULL. */
int comm_stop_ask(comm_stop *stop, dcp_error *err);
/* The same without asking: whether it was found before. */
int comm_stop_status(const comm_stop *stop, dcp_error *err);
