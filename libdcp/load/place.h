/* What a load brings for boxes on a device: collected in page-locked memory, copied from there, and
 * found to have arrived. */
#ifndef DCP_LOAD_PLACE_H
#define DCP_LOAD_PLACE_H

#include "copy/piece.h"
#include "device/staging.h"

/* *out: NULL where the state has no boxes on a device. The program's work on the device so far
 * comes before the load's copies. */
int place_prepare(const dcp_state *state, staging **out, dcp_error *err);

/* Bytes [offset, offset + bytes) of a box on the device, copied before the return; `path` stays
 * until place_rest. */
int place_range(staging *s, const state_box *box, const char *path, uint64_t offset,
                const void *data, uint64_t bytes, dcp_error *err);
/* The same of a piece's box. */
int place(const piece *p, uint64_t offset, const void *data, uint64_t bytes, dcp_error *err);

/* Waits until all that was placed is on the device, and proves it. `s` may be NULL. */
int place_rest(staging *s, dcp_error *err);

#endif
