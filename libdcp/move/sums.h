/* Boxes that are read for their checksums alone. */
#pragma once

#include "move/piece.h"

struct move_progress;

/* Not collective. Reads the boxes of pieces once, in parts, from wherever they are, and adds them
 * to the pieces' checksums. Each box is all of its piece's dataset, and no piece is bulk. On a
 * device, bytes that lie together in the checksums are summed there; others are copied, in the
 * order of the pieces' file_offset, which ascend (before: move_device_begin). `progress` may be
 * NULL. */
int move_sums(const move_piece *pieces, size_t n, struct move_progress *progress, dcp_error *err);

/* The same for what other holders supply of the pieces' boxes, where the boxes have checksums of
 * their own: adds it to those. Each of these boxes is in its piece whole. */
int move_sums_of_others(const move_piece *pieces, size_t n, struct move_progress *progress,
                        dcp_error *err);
