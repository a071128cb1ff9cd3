/* Divides a file into a sequence of windows. The addresses are cut into file domains of a few MiB,
 * and a window consists of consecutive domains. In a window each aggregator has at most one domain:
 * it collects the domain's fragments and writes its pages, or reads and distributes them. Fragments
 * travel to or from the aggregators window by window, so memory stays bounded.
 *
 * Aggregators take turns: with n aggregators, domain d belongs to aggregator number d mod n.
 * The aggregators are some of each host's ranks, numbered such that neighbours are on different
 * hosts. So a window uses the disks and the network of many hosts. One rank reads or writes a whole
 * domain, so requests have several MiB, however many ranks there are. In the last row of n domains
 * the turns are shifted by one, so the first aggregator, rank 0, has the last domain as well as the
 * first: in these two it writes a file's user block and tables, in addition to data.
 *
 * If only a tiny part of the bytes that are read lies in fragments, the ranks read independently:
 * each rank is the aggregator of all its own fragments, and waits for no other rank. Reading a page
 * twice costs less than distributing it.
 *
 * If some addresses can be reached only by some of the ranks, each rank has a reader range. The
 * rank is the aggregator of all domains in its range, which lie one after the other. */
#pragma once

#include <stdbool.h>

#include "comm/comm.h"
#include "io/queue.h"
#include "move/piece.h"

/* The maximum size of a window if there are reader ranges. It is exceeded if necessary, because a
 * domain has at least one page of the largest page size. */
#define MOVE_WINDOW_BYTES (16u << 20)
/* The maximum number of bytes that a group gives to the domains of other groups, or takes from
 * them, in one window; a single domain may exceed it. */
#define MOVE_FOREIGN_BYTES (12u << 20)
#define MOVE_DOMAIN_PAGES (IO_SLOT_BYTES / PAGE_BYTES) /* the most pages of a domain */
/* The maximum number of aggregators if there is a single host, and on each host if there are
 * several. With several hosts, usually all ranks of a host are aggregators, so those that also
 * write bulk parts write no more than others. */
#define MOVE_HOST_AGGREGATORS 4
#define MOVE_HOSTS_AGGREGATORS 8

/* A rank that aggregates; `area` is the number of its area in its sharing group's memory. */
typedef struct move_aggregator {
    int rank, group, area;
} move_aggregator;

typedef struct move_windows {
    uint64_t domain_bytes, window_bytes;
    int width; /* domains per window */
    move_aggregator *aggregators;
    int n_aggregators;
    int areas;                 /* the largest number of areas in a group */
    int is_independent;        /* the ranks read independently: each is its own aggregator */
    const comm_groups *groups; /* the communicator's sharing groups */
    /* Rank r's range is [reader_ranges[r], reader_ranges[r + 1]). Borrowed; NULL: no reader
     * ranges. */
    const uint64_t *reader_ranges;
    uint64_t last; /* the last domain that has any bytes; valid only without reader ranges */
    /* the first domain in the row of `last`; UINT64_MAX: there is only one row */
    uint64_t last_row;
    uint64_t count; /* number of all windows, listed or not */
    /* The windows to move, ascending. With several groups: those in which this rank's group takes
     * part. With a single group: those in which any rank has a fragment. If is_independent: those
     * in which this rank has a fragment. */
    uint64_t *list;
    size_t n;
    struct move_routes *routes; /* between groups (move/routes.h); NULL: only one group */
    bool is_known;              /* all ranks have found their windows */
} move_windows;

/* Returns the domain's aggregator. Requires that there are no reader ranges. */
const move_aggregator *move_windows_aggregator(const move_windows *w, uint64_t domain);

/* A domain of a window. */
typedef struct move_domain {
    uint64_t start, end; /* its addresses; can be empty in a reader range */
    const move_aggregator *aggregator;
} move_domain;

/* Returns domain i of the window, with i from 0 to width - 1. The domains of a window ascend by
 * address, unless there are reader ranges. */
move_domain move_windows_domain(const move_windows *w, uint64_t window, int i);

/* Finds the window's domain that the rank aggregates. Returns false if it has none. */
bool move_windows_own(const move_windows *w, uint64_t window, int rank, move_domain *out);

/* Sets the number of domains per window. */
void move_windows_set_width(move_windows *w, int width, uint64_t end);

/* Finds the windows that have to be moved. */

/* Cuts the addresses below `end` into windows, and lists the windows to move. If there are several
 * groups, the list is filled only by move_routes_list (routes.h), unless the ranks read
 * independently. Collective. `reader_ranges` is NULL, or has one address per rank, followed by
 * `end`. `to_file` is the direction. */
int move_windows_find(dcp_comm *comm, const move_piece *pieces, size_t n, uint64_t end,
                      const uint64_t *reader_ranges, int to_file, move_windows *out,
                      dcp_error *err);
void move_windows_free(move_windows *w);
