/* Enumerates fragments, and moves them between sharing groups. */
#pragma once

#include <stdbool.h>

#include "comm/messages.h"
#include "move/domain.h"
#include "move/routes.h"

/* Moves fragments between this rank's boxes and the domains of all ranks: walks over the fragments
 * in domains, and reads and writes the pages of domains. */

struct move_transfer;

enum { MOVE_WALKS = 4 }; /* number of walks that can be under way at the same time */

typedef struct move_exchange {
    const struct move_transfer *transfer;
    dcp_comm *comm;
    io_queue *queue;
    move_windows windows;
    /* the position of each walk; with reader ranges, its position in each rank's range */
    size_t *cursors;
    /* This rank's own status: the failure of its first fragment or read that failed, or a
     * cancellation. A rank that has failed still takes part, so no rank waits in vain, but it
     * touches neither boxes nor files. */
    int status;
    dcp_error error;
    bool is_over; /* some rank failed, and all ranks stopped before the last window */
} move_exchange;

/* Collective. `x` must be closed whether or not this succeeds. If memory is short, `cursors`
 * becomes NULL, which move_exchange_run reports. */
int move_exchange_open(move_exchange *x, const struct move_transfer *t, dcp_error *err);
void move_exchange_close(move_exchange *x);

/* Asks the caller whether to cancel the move. If so, sets x->status and reports that the caller's
 * memory is free. Called once per window. Not collective. */
void move_exchange_poll(move_exchange *x);

/* Walks this rank's fragments in the domain. Each walk (numbered `walk`) must request windows in
 * ascending order, and the domains of a window in the order of their numbers. */
void move_exchange_walk(const move_exchange *x, int walk, const move_domain *domain,
                        move_fragment_fn fn, void *ctx);

/* move_exchange_fetch copies a fragment's bytes from its box to `to`; move_exchange_put copies them
 * from `from` into the box. Both add the bytes to the checksums. */
void move_exchange_fetch(move_exchange *x, const move_fragment *f, unsigned char *to);
void move_exchange_put(move_exchange *x, const move_fragment *f, const unsigned char *from);

/* Starts writing or reading those pages of the domain whose elements of `pages` are not 0. `buffer`
 * holds the domain's bytes. All requests use `slot`. */
void move_exchange_start(const move_exchange *x, const move_domain *domain,
                         const unsigned char *pages, unsigned slot, unsigned char *buffer);

/* Waits until the slot's reads are complete. */
void move_exchange_wait(move_exchange *x, unsigned slot);

/* A window under way, in one half of the group's memory. */
typedef struct move_half {
    int number;
    unsigned char *data;     /* the areas of the group's aggregators, one after the other */
    _Atomic uint16_t *marks; /* the marks of their pages */
    bool is_own;             /* this rank has a domain in the window */
    move_domain own;
    unsigned slot;  /* the queue's slot for writing or reading the own domain */
    bool is_in_use; /* this half uses the slot */
    /* for each page of the own domain, whether it is written or read */
    unsigned char pages[MOVE_DOMAIN_PAGES];
} move_half;

/* Adds to each mark of an area the number of those of bytes [offset, offset + bytes) that lie in
 * the mark's page. */
void move_half_count(_Atomic uint16_t *marks, uint64_t offset, uint64_t bytes);

/* Moves fragments between sharing groups: those in domains whose aggregators are in other groups.
 * Ranks collect these fragments in shared memory, and carriers (routes.h) send and receive
 * them.
 *
 * When bytes move to the file, a carrier's memory contains a message to each of its partners:
 * fragments with heads. Within a window the fragments may be in any order, depending on which rank
 * of the group put them there first. The receiver counts the fragments' bytes in the marks, and
 * then places them like fragments of its own group. Normally a message covers one window. If there
 * are few fragments, one message covers all windows, and is sent before the first window.
 *
 * When bytes move from the file, a carrier's memory contains a bit for each page of its partners'
 * domains. A set bit says that a rank of the group needs the page. The carrier sends the bits to
 * its partners, which mark these pages for reading and then send them. So a page is sent to a group
 * only once, however many of its ranks need it. All ranks of the group take their fragments from
 * the carrier's memory. If an exchange of messages requires all ranks, many windows are requested
 * at once. */

typedef struct move_carriers {
    move_exchange *x;
    const move_windows *w;
    const move_routes *routes;
    bool to_file;
    size_t words; /* number of 64-bit words for the pages of a domain */
    size_t block; /* number of windows that are requested at once */
    size_t sets;  /* number of windows whose bits are stored at the same time */
    /* In shared memory. For each other group: an offset in the memory of the rank that is the
     * carrier to that group. To the file: where the next fragments for the group go. From the file:
     * where the pages from the group begin. */
    _Atomic uint64_t *places;
    unsigned char **memory; /* the memory of each rank of this group */
    /* for each group, the number of its domains that the walk over the window has reached */
    uint32_t *seen;
    move_domain *own; /* this group's domains of a window; n_own of them */
    int n_own;
    /* the messages that this rank sends and receives as a carrier */
    dcp_comm_message *send, *receive;
    size_t sends, receives;
    unsigned char *buffer; /* to the file: received messages; from the file: pages for partners */
    /* to the file: the part of each received message that belongs to this window */
    dcp_comm_message *parts;
    size_t n_parts;
    uint64_t *requested;     /* per set: the bits from each partner */
    unsigned char *requests; /* messages with bits, to and from all partners */
} move_carriers;

/* Allocates memory. Collective. `c` must be closed whether or not this succeeds. */
int move_carriers_open(move_carriers *c, move_exchange *x, dcp_error *err);
void move_carriers_close(move_carriers *c);

/* Return the sizes of the shared memory that this rank needs as a carrier, and that the table of
 * places needs. The ranks of a group must exchange these sizes, so that all of them use the same
 * sizes. */
uint64_t move_carriers_bytes(const move_carriers *c);
uint64_t move_carriers_table_bytes(const move_carriers *c);
/* Sets the addresses of the table and of the memory of each rank of the group. */
void move_carriers_use(move_carriers *c, unsigned char *table, unsigned char *const *memory);

/* Begins a walk over a window. */
void move_carriers_rewind(move_carriers *c);
/* Returns the number of a domain of another group among that group's domains of the window. Each
 * walk over a window must call this function exactly once for each such domain, in order. */
uint32_t move_carriers_number(move_carriers *c, const move_domain *d);

/* When bytes move to the file: empties the carrier's messages for a window, before ranks put
 * anything into them. */
void move_carriers_empty(move_carriers *c, uint64_t window);
/* Puts this rank's fragments of the domain into the messages. `number` is the result of
 * move_carriers_number. The walks count_walk and put_walk advance over the domain. */
void move_carriers_put(move_carriers *c, const move_domain *d, uint32_t number, int count_walk,
                       int put_walk);
/* Sends and receives the messages of windows [i, end) of the list: of one window, or of all
 * windows. Waits for partners. */
int move_carriers_send(move_carriers *c, size_t i, size_t end, dcp_error *err);
/* Adds the bytes that were received for the window at index `i` to the marks. */
void move_carriers_count(move_carriers *c, size_t i, const move_half *half);
/* Copies the received fragments into the areas, whose pages must be ready. */
void move_carriers_copy_out(move_carriers *c, const move_half *half);

/* This function and those below are for moves from the file; `i` is a window's index in the list.
 * Clears the window's bits before ranks set any. */
void move_carriers_clear(move_carriers *c, size_t i);
/* Sets the bits of those pages of the domain that contain fragments of this rank. */
void move_carriers_request(move_carriers *c, size_t i, const move_domain *d, uint32_t number,
                           int walk);
/* Exchanges the bits of a block of windows, [i, end). Waits for partners. */
int move_carriers_exchange_requests(move_carriers *c, size_t i, size_t end, dcp_error *err);
/* Marks the pages of the window that partners need. */
void move_carriers_mark(move_carriers *c, size_t i, const move_half *half);
/* Sends and receives pages. Waits for partners. */
int move_carriers_answer(move_carriers *c, size_t i, const move_half *half, dcp_error *err);
/* Takes this rank's fragments of the domain, after all carriers have received their pages. */
void move_carriers_read(move_carriers *c, size_t i, const move_domain *d, uint32_t number,
                        int walk);

/* Exchanges fragments between ranks and aggregators, in both directions. Ranks that share memory
 * form a group; a rank that shares none is a group of its own. */

/* Moves the fragments of all windows. Collective. If only this rank has failed, the failure is in
 * x->status. */
int move_exchange_run(move_exchange *x, dcp_error *err);
