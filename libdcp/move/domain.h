/* The file seen in windows. The addresses are cut into file domains of some MiB, and a window is a
 * row of them. In a window an aggregator has one domain at most: it puts the domain's fragments
 * together and writes its pages, or reads and hands them out. Fragments travel to or from the
 * aggregators window by window, so memory stays bounded.
 *
 * Domains take turns: of n aggregators, number d mod n has domain d. They are some ranks of each
 * host, numbered so that neighbours are on different hosts: a window uses the disks and the network
 * of many. So all of a request of several MiB is one rank's, however many ranks there are. In the
 * last row of n domains turns are shifted by one, so that the first aggregator, rank 0, has the
 * last domain as well as the first: it writes a file's user block and tables there, beside data.
 *
 * Where next to nothing of what is read lies in fragments, each rank is the aggregator of all its
 * own, and waits for no other: it costs less to read a page twice than to hand it out.
 *
 * Where only some ranks can reach some addresses, each rank has a reader range, addresses of its
 * own, is its aggregator, and its domains lie in there one after the other. */
#pragma once

#include "comm/comm.h"
#include "io/queue.h"
#include "move/piece.h"

/* Of reader ranges, but for a page of the largest a range. */
#define MOVE_WINDOW_BYTES (16u << 20)
/* At most what a group has in a window's domains of others, or wants of them; but where one domain
 * has more. */
#define MOVE_FOREIGN_BYTES (12u << 20)
#define MOVE_DOMAIN_PAGES (IO_SLOT_BYTES / PAGE_BYTES) /* at most */
/* At most, of one host alone, or of each of several: there the ranks that write past aggregators
 * are to have as much besides as all others. */
#define MOVE_HOST_AGGREGATORS 4
#define MOVE_HOSTS_AGGREGATORS 8

/* A rank that aggregates; it has the area of that number in the memory of its sharing group. */
typedef struct move_aggregator {
    int rank, group, area;
} move_aggregator;

typedef struct move_windows {
    uint64_t domain_bytes, window_bytes;
    int width; /* domains of a window */
    move_aggregator *aggregators;
    int n_aggregators;
    int areas;                 /* the most that a group has */
    int is_apart;              /* each rank reads for itself; the only aggregator is this one */
    const comm_groups *groups; /* sharing groups; the communicator's */
    /* rank r's is [reader_ranges[r], reader_ranges[r + 1]); borrowed; NULL: there are none */
    const uint64_t *reader_ranges;
    uint64_t last;     /* domain that has any bytes; where there are no reader ranges */
    uint64_t last_row; /* the first domain of its row; UINT64_MAX: there is one row */
    uint64_t count;    /* of windows below the end */
    uint64_t *list; /* the windows in which this rank's group takes part, ascending; where there is
                       one group, in which any rank has a fragment; apart, in which this rank has */
    size_t n;
    struct move_routes *routes; /* between groups (talks.h); NULL: there is one */
    int is_known;               /* all ranks have theirs */
} move_windows;

/* Who has that domain, where there are no reader ranges. */
const move_aggregator *move_windows_aggregator(const move_windows *w, uint64_t domain);

/* A domain of a window. */
typedef struct move_domain {
    uint64_t start, end; /* its addresses; of a reader range they may be none */
    const move_aggregator *aggregator;
} move_domain;

/* Domain number i of the window: of 0 to width - 1, by address but where there are reader ranges.
 */
move_domain move_windows_domain(const move_windows *w, uint64_t window, int i);

/* The domain of the window that the rank aggregates; 0: it has none there. */
int move_windows_own(const move_windows *w, uint64_t window, int rank, move_domain *out);

/* Sets how many domains a window has. */
void move_windows_set_width(move_windows *w, int width, uint64_t end);

/* Which windows of the addresses are moved. */

/* Collective: cuts the addresses below `end`, and finds the windows of which this rank's group
 * takes part; where there are several groups, move_routes_list (talks.h) lists them. Where ranks
 * read apart, those of this rank.
 * `reader_ranges`: NULL, or an address a rank and `end`. `to_file`: the direction. */
int move_windows_find(dcp_comm *comm, const move_piece *pieces, size_t n, uint64_t end,
                      const uint64_t *reader_ranges, int to_file, move_windows *out,
                      dcp_error *err);
void move_windows_free(move_windows *w);
