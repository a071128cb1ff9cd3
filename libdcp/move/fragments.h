/* Fragments on their way between this rank's boxes and the domains of all ranks: what the two ways
 * of exchanging them share, by messages (exchange_messages.h) and through the memory of a host
 * (exchange_shared.h). */
#pragma once

#include "move/window.h"

struct move_transfer;

enum { MOVE_WALKS = 3 }; /* that may be on their way at a time */

typedef struct move_exchange {
    const struct move_transfer *transfer;
    dcp_comm *comm;
    io_queue *queue;
    move_windows windows;
    size_t *cursors; /* where each walk stands; where there are reader ranges, in each rank's */
    int status; /* this rank's own: the first fragment or read that failed, or that it gave up. It
                   goes on, so that nobody waits for it, but touches neither boxes nor files */
    dcp_error error;
    int is_over; /* some rank failed: all have ended before the last window */
} move_exchange;

/* Collective. To be closed in either case. */
int move_exchange_open(move_exchange *x, const struct move_transfer *t, dcp_error *err);
void move_exchange_close(move_exchange *x);

/* Not collective; once a window: whether this rank gives up. It frees the caller's memory then. */
void move_exchange_ask(move_exchange *x);

/* Walks this rank's fragments in rank's domain of the window. Walk number `walk` asks for windows
 * in ascending order, and for the domains of a window in the order of ranks. */
void move_exchange_walk(const move_exchange *x, int walk, uint64_t window, int rank,
                        move_fragment_fn fn, void *ctx);

/* A fragment's bytes from the box they belong to, or to there; and adds them to its checksums. */
void move_exchange_fetch(move_exchange *x, const move_fragment *f, unsigned char *to);
void move_exchange_put(move_exchange *x, const move_fragment *f, const unsigned char *from);

/* Starts writing or reading the marked pages of this rank's domain of the window, which lies in
 * `buffer`. All requests are the slot's. */
void move_exchange_start(const move_exchange *x, uint64_t window, const unsigned char *pages,
                         unsigned slot, unsigned char *buffer);

/* Waits for what the slot is reading. */
void move_exchange_wait(move_exchange *x, unsigned slot);
