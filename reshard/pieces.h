/* A box as a sequence of smaller boxes, for work in bounded memory. */
#ifndef RESHARD_PIECES_H
#define RESHARD_PIECES_H

#include "dcp/tensor.h"

/* The longest box that begins at element `first` of `box` (in row-major order), holds at most
 * `max_elems` (at least 1), and whose elements follow each other in that order. `first` is less
 * than the box's elements. Returns the number of elements in *piece. */
uint64_t pieces_next(const dcp_box *box, uint32_t ndim, uint64_t first, uint64_t max_elems,
                     dcp_box *piece);

#endif
