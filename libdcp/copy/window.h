/* The file seen in windows: a window is one region a rank, and each rank owns its region of every
 * window. Fragments travel to (or from) the owners window by window, so memory stays bounded.
 *
 * Where only some ranks can reach some addresses, each rank has a lane, a range of addresses of its
 * own, and the regions of a rank lie in its lane one after the other. Without lanes the regions of
 * a window lie one after the other. */
#ifndef DCP_COPY_WINDOW_H
#define DCP_COPY_WINDOW_H

#include "comm/comm.h"
#include "copy/piece.h"
#include "io/queue.h"

#define WINDOW_BYTES (16u << 20) /* at most, but for a page a rank */

typedef struct windows {
    uint64_t region_bytes, window_bytes;
    const uint64_t
        *lanes;     /* rank r's is [lanes[r], lanes[r + 1]); borrowed; NULL: there are none */
    uint64_t *list; /* the windows in which any rank has a fragment, ascending */
    size_t n;
} windows;

/* Collective: which windows of a file of `file_bytes` have fragments. */
int windows_find(dcp_comm *comm, const piece *pieces, size_t n, uint64_t file_bytes, windows *out,
                 dcp_error *err);
/* The same with lanes. */
int windows_find_lanes(dcp_comm *comm, const piece *pieces, size_t n, const uint64_t *lanes,
                       windows *out, dcp_error *err);
void windows_free(windows *w);

/* The first byte of rank's region in window w, and the first one after it. */
static inline uint64_t windows_region(const windows *w, uint64_t window, int rank) {
    if (w->lanes) return w->lanes[rank] + window * w->region_bytes;
    return window * w->window_bytes + (uint64_t)rank * w->region_bytes;
}
static inline uint64_t windows_region_end(const windows *w, uint64_t window, int rank) {
    uint64_t end = windows_region(w, window, rank) + w->region_bytes;
    return w->lanes && end > w->lanes[rank + 1] ? w->lanes[rank + 1] : end;
}

#endif
