/* The file seen in windows: a window is one region a rank, and each rank owns its region of every
 * window. Fragments travel to (or from) the owners window by window, so memory stays bounded. */
#ifndef DCP_COPY_WINDOW_H
#define DCP_COPY_WINDOW_H

#include "comm/comm.h"
#include "copy/piece.h"
#include "io/queue.h"

#define WINDOW_BYTES (16u << 20) /* at most, but for a page a rank */

typedef struct windows {
    uint64_t region_bytes, window_bytes;
    uint64_t *list; /* the windows in which any rank has a fragment, ascending */
    size_t n;
} windows;

/* Collective: which windows of a file of `file_bytes` have fragments. */
int windows_find(dcp_comm *comm, const piece *pieces, size_t n, uint64_t file_bytes, windows *out,
                 dcp_error *err);
void windows_free(windows *w);

/* The first byte of rank's region in window w. */
static inline uint64_t windows_region(const windows *w, uint64_t window, int rank) {
    return window * w->window_bytes + (uint64_t)rank * w->region_bytes;
}

#endif
