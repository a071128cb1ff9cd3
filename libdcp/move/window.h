/* The file seen in windows. In a window each rank is the aggregator of one file domain, a row of
 * pages: it puts the domain's fragments together and writes its pages, or reads and hands them out.
 * Fragments travel to or from the aggregators window by window, so memory stays bounded.
 *
 * Where only some ranks can reach some addresses, each rank has a reader range, addresses of its
 * own, and its domains lie in there one after the other. Else the domains of a window lie one after
 * the other. */
#pragma once

#include "comm/comm.h"
#include "io/queue.h"
#include "move/piece.h"

#define MOVE_WINDOW_BYTES (16u << 20) /* at most, but for a page of the largest a rank */
#define MOVE_DOMAIN_PAGES (IO_SLOT_BYTES / PAGE_BYTES) /* at most */

typedef struct move_windows {
    uint64_t domain_bytes, window_bytes;
    /* rank r's is [reader_ranges[r], reader_ranges[r + 1]); borrowed; NULL: there are none */
    const uint64_t *reader_ranges;
    uint64_t *list; /* the windows in which any rank has a fragment, ascending */
    size_t n;
} move_windows;

/* Collective: which windows of the addresses below `end` have fragments. `reader_ranges`: NULL, or
 * an address a rank and `end`. */
int move_windows_find(dcp_comm *comm, const move_piece *pieces, size_t n, uint64_t end,
                      const uint64_t *reader_ranges, move_windows *out, dcp_error *err);
void move_windows_free(move_windows *w);

/* The first byte of rank's domain in window w, and the first one after it. */
static inline uint64_t move_windows_domain(const move_windows *w, uint64_t window, int rank) {
    if (w->reader_ranges) return w->reader_ranges[rank] + window * w->domain_bytes;
    return window * w->window_bytes + (uint64_t)rank * w->domain_bytes;
}
static inline uint64_t move_windows_domain_end(const move_windows *w, uint64_t window, int rank) {
    uint64_t end = move_windows_domain(w, window, rank) + w->domain_bytes;
    return w->reader_ranges ? core_min_u64(end, w->reader_ranges[rank + 1]) : end;
}
