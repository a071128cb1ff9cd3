/* The file as a sequence of windows. The addresses are cut into file domains of some MiB, and a
 * window is a row of domains. In a window each aggregator has at most one domain: it collects the
 * domain's fragments and writes its pages, or reads and distributes them. Fragments travel to or
 * from the aggregators window by window, so memory stays bounded.
 *
 * Domains take turns: of n aggregators, number d mod n has domain d. Aggregators are some ranks of
 * each host, numbered such that neighbours are on different hosts, so a window uses the disks and
 * the network of many hosts. A request of several MiB lies in one domain, and so is made by one
 * rank, however many ranks there are. In the last row of n domains the turns are shifted by one, so
 * the first aggregator, rank 0, has the last domain as well as the first: it writes a file's user
 * block and tables there, in addition to data.
 *
 * If a tiny part of what is read lies in fragments, ranks read apart: each rank is the aggregator
 * of all its own fragments, and waits for no other rank. Reading a page twice costs less than
 * distributing it.
 *
 * If only some ranks can reach some addresses, each rank has a reader range. It is the aggregator
 * of its range, in which its domains lie one after the other. */
#pragma once

#include "comm/comm.h"
#include "io/queue.h"
#include "move/piece.h"

/* With reader ranges, except that a domain has at least one page of the largest size. */
#define MOVE_WINDOW_BYTES (16u << 20)
/* The maximum that a group has in, or needs from, a window's domains in other groups, unless a
 * single domain exceeds it. */
#define MOVE_FOREIGN_BYTES (12u << 20)
#define MOVE_DOMAIN_PAGES (IO_SLOT_BYTES / PAGE_BYTES) /* maximum */
/* The maximum on a single host, and on each of several hosts. In the latter case these are usually
 * all ranks of the host, so ranks that also write past aggregators write no more than others. */
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
    int areas;                 /* maximum per group */
    int is_apart;              /* each rank reads for itself; this rank is the only aggregator */
    const comm_groups *groups; /* the communicator's sharing groups */
    /* rank r's range is [reader_ranges[r], reader_ranges[r + 1]); borrowed; NULL: no reader
     * ranges */
    const uint64_t *reader_ranges;
    uint64_t last;     /* the last domain that has any bytes; without reader ranges only */
    uint64_t last_row; /* the first domain of its row; UINT64_MAX: there is only one row */
    uint64_t count;    /* number of windows below the end */
    /* the windows in which this rank's group takes part, ascending; with a single group, those in
     * which any rank has a fragment; if is_apart, those in which this rank has one */
    uint64_t *list;
    size_t n;
    struct move_routes *routes; /* between groups (routes.h); NULL: only one group */
    int is_known;               /* all ranks have found theirs */
} move_windows;

/* Returns the domain's aggregator. Requires that there are no reader ranges. */
const move_aggregator *move_windows_aggregator(const move_windows *w, uint64_t domain);

/* A domain of a window. */
typedef struct move_domain {
    uint64_t start, end; /* its addresses; empty is possible in a reader range */
    const move_aggregator *aggregator;
} move_domain;

/* Returns domain i of the window, 0 to width - 1; sorted by address, unless there are reader
 * ranges. */
move_domain move_windows_domain(const move_windows *w, uint64_t window, int i);

/* Finds the domain of the window that the rank aggregates. Returns 0 if it has none. */
int move_windows_own(const move_windows *w, uint64_t window, int rank, move_domain *out);

/* Sets the number of domains per window. */
void move_windows_set_width(move_windows *w, int width, uint64_t end);

/* Which windows of the addresses are moved. */

/* Cuts the addresses below `end` into windows, and finds those in which this rank's group takes
 * part; if there are several groups, move_routes_list (routes.h) lists them. If ranks read apart,
 * finds this rank's windows. Collective. `reader_ranges`: NULL, or one address per rank and `end`.
 * `to_file`: the direction. */
int move_windows_find(dcp_comm *comm, const move_piece *pieces, size_t n, uint64_t end,
                      const uint64_t *reader_ranges, int to_file, move_windows *out,
                      dcp_error *err);
void move_windows_free(move_windows *w);
