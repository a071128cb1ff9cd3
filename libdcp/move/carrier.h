/* Fragments: how they are enumerated, and how they travel between sharing groups. */
#pragma once

#include "comm/messages.h"
#include "move/domain.h"
#include "move/routes.h"

/* Fragments on their way between this rank's boxes and the domains of all ranks: walks
 * over them, and pages of domains. */

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

/* What goes between sharing groups: fragments of the domains whose aggregators are in other groups.
 * Ranks put them together in shared memory, and their carriers (talks.h) send and take them.
 *
 * To the file, a carrier's memory holds a message to each of its partners: fragments with their
 * heads, as the ranks of the group put them there, those of a window in any order. Who gets them
 * counts their bytes in the marks, and then places them like fragments of its own group. A message
 * is of one window; or, where there are few fragments, of all windows, and goes before the first.
 *
 * From the file, it holds a bit for each page of its partners' domains: whether a rank of the group
 * wants it. The bits go to the partners, who mark the pages, and answer with them. So a page
 * crosses once, whoever wants it there. All take their fragments from the carrier's memory. Where
 * all ranks have to take part in an exchange of messages, many windows are asked for at once. */

typedef struct move_carriers {
    move_exchange *x;
    const move_windows *w;
    const move_routes *routes;
    int to_file;
    size_t words; /* of 64 bits that the pages of a domain take */
    size_t block; /* windows that are asked for at once */
    size_t sets;  /* of bits: the windows of which some are set or used */
    /* In shared memory. Of each group, in its carrier's memory: to the file where the next
     * fragments for it go; from it where its pages begin. */
    _Atomic uint64_t *places;
    unsigned char **memory; /* each rank's of the group */
    uint32_t *seen;         /* of each group: its domains in this window, up to the one walked */
    move_domain *own;       /* this group's domains of a window; n_own of them */
    int n_own;
    /* of this rank as a carrier */
    dcp_comm_message *send, *receive;
    size_t sends, receives;
    unsigned char *buffer;   /* to the file: what partners sent; from it: what goes to them */
    dcp_comm_message *parts; /* to the file: of what each partner sent, that of this window */
    size_t n_parts;
    uint64_t *asked;     /* the bits of each partner, by sets */
    unsigned char *asks; /* messages of them, to all partners and from them */
} move_carriers;

/* Collective: memory. `c` is to be closed in either case. */
int move_carriers_open(move_carriers *c, move_exchange *x, dcp_error *err);
void move_carriers_close(move_carriers *c);

/* How many bytes of shared memory the carrier needs, and the table; the group's ranks get both of
 * the same size. */
uint64_t move_carriers_bytes(const move_carriers *c);
uint64_t move_carriers_table_bytes(const move_carriers *c);
/* Where they are: the table, and the memory of each rank of the group. */
void move_carriers_use(move_carriers *c, unsigned char *table, unsigned char *const *memory);

/* A walk over a window begins. */
void move_carriers_rewind(move_carriers *c);
/* The next domain of the walk is of another group: its number among that one's. Each walk over a
 * window calls it for each such domain. */
uint32_t move_carriers_number(move_carriers *c, const move_domain *d);

/* To the file. Before ranks put anything of a window: the carrier's messages have nothing of it. */
void move_carriers_empty(move_carriers *c, uint64_t window);
/* Puts this rank's fragments of the domain with number `number`; walks of these numbers see it. */
void move_carriers_put(move_carriers *c, const move_domain *d, uint32_t number, int count_walk,
                       int put_walk);
/* Waits for partners: messages of windows [i, end) of the list go and come: of one, or of all. */
int move_carriers_send(move_carriers *c, size_t i, size_t end, dcp_error *err);
/* What has come of the window at place `i` is counted in the marks. */
void move_carriers_count(move_carriers *c, size_t i, const move_half *half);
/* Then, once the pages are ready: to the areas. */
void move_carriers_place(move_carriers *c, const move_half *half);

/* From the file; windows by their place in the list. Before ranks want anything: nothing is. */
void move_carriers_forget(move_carriers *c, size_t i);
/* Wants the pages of this rank's fragments of the domain. */
void move_carriers_want(move_carriers *c, size_t i, const move_domain *d, uint32_t number,
                        int walk);
/* Waits for partners: the bits of the windows from i, which begins a block, up to `end` go and
 * come.
 */
int move_carriers_ask(move_carriers *c, size_t i, size_t end, dcp_error *err);
/* Marks what partners want of the window. */
void move_carriers_mark(move_carriers *c, size_t i, const move_half *half);
/* Waits for partners: pages go and come. */
int move_carriers_answer(move_carriers *c, size_t i, const move_half *half, dcp_error *err);
/* This rank's fragments of the domain, once all carriers have them. */
void move_carriers_take(move_carriers *c, size_t i, const move_domain *d, uint32_t number,
                        int walk);

/* Fragments exchanged between the ranks and the aggregators, in both directions. Ranks that share
 * memory are a group; so is a rank that shares none. */

/* Collective. Moves the fragments of all windows. What fails on this rank alone is in x->status. */
int move_exchange_run(move_exchange *x, dcp_error *err);
