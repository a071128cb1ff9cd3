/* Boxes on a device, saved: through page-locked memory, and the fence opens when all is copied. */
#ifndef DCP_SAVE_SNAPSHOT_H
#define DCP_SAVE_SNAPSHOT_H

#include "save/image.h"

/* Not collective. Sees to it that staging memory is there where the state has boxes on a device,
 * with about `bytes` of memory. No save is in flight. */
int snapshot_open(dcp_store *store, const dcp_state *state, uint64_t bytes, dcp_error *err);

/* The same on the thread that asks for the save, whose copies come after what the program has given
 * the device so far. */
int snapshot_prepare(dcp_store *store, const dcp_state *state, uint64_t bytes, dcp_error *err);

/* Before the image's sorted pieces are read. */
void snapshot_begin(image *im);

/* Not collective: write_direct, also of pieces on the device. Their fragments have been read. */
int snapshot_write(image *im, io_queue *queue, dcp_error *err);

#endif
