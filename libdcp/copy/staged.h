/* Boxes on a device, read for the fragments of a save: a batch is filled with what the walk over
 * the file needs next, so that many small boxes and short runs are one copy each way and one wait.
 */
#ifndef DCP_COPY_STAGED_H
#define DCP_COPY_STAGED_H

#include "copy/piece.h"
#include "device/staging.h"

/* Divides the staging memory; the pieces, sorted, stay while they are fetched from. */
void staged_begin(staging *s, const piece *pieces, size_t n);

/* Bytes [offset, offset + bytes) of the box of a piece that has `staging`, one of those that
 * staged_begin was given. */
int staged_fetch(const piece *p, uint64_t offset, uint64_t bytes, void *out, dcp_error *err);

#endif
