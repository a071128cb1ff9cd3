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
#pragma once

#include "comm/messages.h"
#include "move/fragments.h"
#include "move/talks.h"

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
