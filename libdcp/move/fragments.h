/* Fragments on their way between this rank's boxes and the domains of all ranks: walks
 * over them, and pages of domains. */
#pragma once

#include "move/domain.h"

struct move_transfer;

enum { MOVE_WALKS = 4 }; /* that may be on their way at a time */

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

/* Collective. To be closed in either case. `cursors` is NULL where memory is short. */
int move_exchange_open(move_exchange *x, const struct move_transfer *t, dcp_error *err);
void move_exchange_close(move_exchange *x);

/* Not collective; once a window: whether this rank gives up. It frees the caller's memory then. */
void move_exchange_ask(move_exchange *x);

/* Walks this rank's fragments in the domain. Walk number `walk` asks for windows in ascending
 * order, and for the domains of a window by their numbers. */
void move_exchange_walk(const move_exchange *x, int walk, const move_domain *domain,
                        move_fragment_fn fn, void *ctx);

/* A fragment's bytes from the box they belong to, or to there; and adds them to its checksums. */
void move_exchange_fetch(move_exchange *x, const move_fragment *f, unsigned char *to);
void move_exchange_put(move_exchange *x, const move_fragment *f, const unsigned char *from);

/* Starts writing or reading the marked pages of the domain, which lies in `buffer`. All requests
 * are the slot's. */
void move_exchange_start(const move_exchange *x, const move_domain *domain,
                         const unsigned char *pages, unsigned slot, unsigned char *buffer);

/* Waits for what the slot is reading. */
void move_exchange_wait(move_exchange *x, unsigned slot);

/* A window that is on its way, in one half of the group's memory. */
typedef struct move_half {
    int number;
    unsigned char *data;     /* the areas of the group's aggregators, one after the other */
    _Atomic uint16_t *marks; /* and those of their pages */
    int is_own;              /* this rank has a domain in it */
    move_domain own;
    unsigned slot; /* of the queue, that the own domain is written or read by */
    int is_in_use; /* the slot, by this half */
    unsigned char pages[MOVE_DOMAIN_PAGES]; /* of the own domain: those to be written or read */
} move_half;

/* Adds bytes [offset, offset + bytes) of an area to the marks of its pages. */
void move_half_count(_Atomic uint16_t *marks, uint64_t offset, uint64_t bytes);
