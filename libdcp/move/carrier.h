/* Fragments: how they are enumerated, and how they travel between sharing groups. */
#pragma once

#include "comm/messages.h"
#include "move/domain.h"
#include "move/routes.h"

/* Fragments on their way between this rank's boxes and the domains of all ranks: walks over them,
 * and pages of domains. */

struct move_transfer;

enum { MOVE_WALKS = 4 }; /* number of walks that can be under way at the same time */

typedef struct move_exchange {
    const struct move_transfer *transfer;
    dcp_comm *comm;
    io_queue *queue;
    move_windows windows;
    /* the position of each walk; with reader ranges, its position in each rank's range */
    size_t *cursors;
    /* status of this rank alone: the first fragment or read that failed, or that it gave up. It
     * continues, so no rank waits for it, but touches neither boxes nor files */
    int status;
    dcp_error error;
    int is_over; /* some rank failed, and all ended before the last window */
} move_exchange;

/* Collective. Must be closed whether or not it succeeds. `cursors` is NULL if memory is short. */
int move_exchange_open(move_exchange *x, const struct move_transfer *t, dcp_error *err);
void move_exchange_close(move_exchange *x);

/* Asks whether this rank gives up; if it does, releases the caller's memory. Called once per
 * window. Not collective. */
void move_exchange_ask(move_exchange *x);

/* Walks this rank's fragments in the domain. Each walk (numbered `walk`) must request windows in
 * ascending order, and the domains of a window in the order of their numbers. */
void move_exchange_walk(const move_exchange *x, int walk, const move_domain *domain,
                        move_fragment_fn fn, void *ctx);

/* Copy a fragment's bytes from its box, or into it, and add them to its checksums. */
void move_exchange_fetch(move_exchange *x, const move_fragment *f, unsigned char *to);
void move_exchange_put(move_exchange *x, const move_fragment *f, const unsigned char *from);

/* Starts writing or reading the marked pages of the domain, whose memory is `buffer`. All requests
 * use `slot`. */
void move_exchange_start(const move_exchange *x, const move_domain *domain,
                         const unsigned char *pages, unsigned slot, unsigned char *buffer);

/* Waits until the slot's reads are complete. */
void move_exchange_wait(move_exchange *x, unsigned slot);

/* A window under way, in one half of the group's memory. */
typedef struct move_half {
    int number;
    unsigned char *data;     /* the areas of the group's aggregators, one after the other */
    _Atomic uint16_t *marks; /* the marks of their pages */
    int is_own;              /* this rank has a domain in the window */
    move_domain own;
    unsigned slot; /* the queue's slot for writing or reading the own domain */
    int is_in_use; /* this half uses the slot */
    /* for each page of the own domain, whether it is written or read */
    unsigned char pages[MOVE_DOMAIN_PAGES];
} move_half;

/* Adds bytes [offset, offset + bytes) of an area to the marks of its pages. */
void move_half_count(_Atomic uint16_t *marks, uint64_t offset, uint64_t bytes);

/* The traffic between sharing groups: fragments in domains whose aggregators are in other groups.
 * Ranks collect them in shared memory, and carriers (routes.h) send and receive them.
 *
 * To the file, a carrier's memory contains a message to each of its partners: fragments with their
 * heads, in the order in which the ranks of the group put them there; those of one window in any
 * order. The receiver counts their bytes in the marks, and then places them like fragments of its
 * own group. A message covers one window or, if there are few fragments, all windows; then it is
 * sent before the first.
 *
 * From the file, a carrier's memory contains a bit for each page of its partners' domains, which
 * says that a rank of the group needs the page. The bits go to the partners, who mark the pages and
 * answer with them. So a page crosses only once, however many ranks need it. All ranks take their
 * fragments from the carrier's memory. If all ranks have to take part in an exchange of messages,
 * many windows are requested at once. */

typedef struct move_carriers {
    move_exchange *x;
    const move_windows *w;
    const move_routes *routes;
    int to_file;
    size_t words; /* number of 64-bit words for the pages of a domain */
    size_t block; /* number of windows that are requested at once */
    size_t sets;  /* number of windows with bits that are set or in use */
    /* In shared memory, for each group, an offset in its carrier's memory. To the file: the place
     * of the next fragments for the group. From the file: the beginning of its pages. */
    _Atomic uint64_t *places;
    unsigned char **memory; /* each group rank's memory */
    /* for each group, the number of its domains that the walk over the window has reached */
    uint32_t *seen;
    move_domain *own; /* this group's domains of a window; n_own of them */
    int n_own;
    /* for this rank as a carrier */
    dcp_comm_message *send, *receive;
    size_t sends, receives;
    unsigned char *buffer; /* to the file: received messages; from the file: pages for partners */
    /* to the file: the part of each received message that belongs to this window */
    dcp_comm_message *parts;
    size_t n_parts;
    uint64_t *asked;     /* the bits from each partner, by sets */
    unsigned char *asks; /* messages with bits, to and from all partners */
} move_carriers;

/* Allocates memory. Collective. `c` must be closed whether or not it succeeds. */
int move_carriers_open(move_carriers *c, move_exchange *x, dcp_error *err);
void move_carriers_close(move_carriers *c);

/* The sizes of the shared memory that the carrier and the table need; the group's ranks get the
 * same sizes. */
uint64_t move_carriers_bytes(const move_carriers *c);
uint64_t move_carriers_table_bytes(const move_carriers *c);
/* Sets the places of the table and of the memory of each rank of the group. */
void move_carriers_use(move_carriers *c, unsigned char *table, unsigned char *const *memory);

/* Begins a walk over a window. */
void move_carriers_rewind(move_carriers *c);
/* Called when a walk reaches a domain of another group: returns its number among that group's
 * domains of the window. Each walk over a window calls it for each such domain. */
uint32_t move_carriers_number(move_carriers *c, const move_domain *d);

/* To the file. Empties the carrier's messages for a window, before ranks put anything into them. */
void move_carriers_empty(move_carriers *c, uint64_t window);
/* Puts this rank's fragments of the domain, whose number is `number`, into the messages. The walks
 * count_walk and put_walk pass the domain. */
void move_carriers_put(move_carriers *c, const move_domain *d, uint32_t number, int count_walk,
                       int put_walk);
/* Sends and receives the messages of windows [i, end) of the list, which is one window or all.
 * Waits for partners. */
int move_carriers_send(move_carriers *c, size_t i, size_t end, dcp_error *err);
/* Counts in the marks what was received for the window at index `i`. */
void move_carriers_count(move_carriers *c, size_t i, const move_half *half);
/* Copies what was received into the areas, once their pages are ready. */
void move_carriers_place(move_carriers *c, const move_half *half);

/* From the file, where `i` is a window's index in the list. Clears the bits before ranks set
 * any. */
void move_carriers_forget(move_carriers *c, size_t i);
/* Sets the bits of the pages with this rank's fragments of the domain. */
void move_carriers_want(move_carriers *c, size_t i, const move_domain *d, uint32_t number,
                        int walk);
/* Exchanges the bits of windows [i, end), where i begins a block. Waits for partners. */
int move_carriers_ask(move_carriers *c, size_t i, size_t end, dcp_error *err);
/* Marks the pages of the window that partners need. */
void move_carriers_mark(move_carriers *c, size_t i, const move_half *half);
/* Sends and receives pages. Waits for partners. */
int move_carriers_answer(move_carriers *c, size_t i, const move_half *half, dcp_error *err);
/* Takes this rank's fragments of the domain, after all carriers have received their pages. */
void move_carriers_take(move_carriers *c, size_t i, const move_domain *d, uint32_t number,
                        int walk);

/* Fragments exchanged between the ranks and the aggregators, in both directions. Ranks that share
 * memory form a group; a rank that shares none is a group of its own. */

/* Moves the fragments of all windows. Collective. A failure of this rank alone is in x->status. */
int move_exchange_run(move_exchange *x, dcp_error *err);
