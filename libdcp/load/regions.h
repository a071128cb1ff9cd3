/* This rank's fragments by the regions that hold them, and the regions' reading. Carriers bring the
 * fragments from the ranks that read to the ranks that want them: by messages (messages.c), or
 * through memory that the ranks share (shared.c). */
#ifndef DCP_LOAD_REGIONS_H
#define DCP_LOAD_REGIONS_H

#include "load/transfer.h"

#define REGION_PAGES (IO_SLOT_BYTES / PAGE_BYTES)

enum { LOAD_WALKS = 3 }; /* that a carrier may be on at a time */

typedef struct regions {
    dcp_checkpoint *ckpt;
    dcp_comm *comm;
    io_queue *queue;
    const piece *pieces;
    size_t n;
    windows windows;
    size_t *cursors; /* where each walk stands; where there are lanes, in each rank's */
    int status; /* this rank's own: the first read or copy that failed; it goes on all the same */
    dcp_error error;
} regions;

/* Collective. To be closed in either case. */
int regions_open(regions *r, dcp_checkpoint *ckpt, io_queue *queue, const piece *pieces, size_t n,
                 dcp_error *err);
void regions_close(regions *r);

/* Walks this rank's fragments in rank's region of the window. Walk number `walk` asks for windows
 * in ascending order, and for the regions of a window in the order of ranks. */
void regions_walk(const regions *r, int walk, uint64_t window, int rank, fragment_fn fn, void *ctx);

/* Starts reading the wanted pages of this rank's region of the window into `buffer`, all of whose
 * requests are the slot's. */
void regions_read(const regions *r, uint64_t window, const unsigned char *wanted, unsigned slot,
                  unsigned char *buffer);

/* Waits for what the slot is reading. */
void regions_wait(regions *r, unsigned slot);

/* Puts a fragment's bytes where they belong, and adds them to its checksums. */
void regions_take(regions *r, const fragment *f, const unsigned char *bytes);

/* The carriers. Collective; windows are moved one after the other. */
int bring_by_messages(regions *r, dcp_error *err);
int bring_by_memory(regions *r, dcp_error *err);

#endif
