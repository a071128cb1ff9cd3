/* A save whose bytes come from a checkpoint's files: what dcp_rewrite and the filling of a store
 * share. Call rewrite_make, make a view of the old files' datasets (reader/view.h), call
 * rewrite_add for each box; then save w->state with rewrite_mover. */
#pragma once

#include "rewrite/move.h"
#include "save/image.h"

/* Allocates room for that many boxes, and for tensor data while they are moved: a part of 4 MiB
 * uses at least a fourth of it. Not collective. Must be freed whether or not it succeeds. Does not
 * change `from` and `view`. */
int rewrite_make(rewrite *w, size_t boxes, uint64_t memory_bytes, dcp_error *err);

/* Adds this rank's box of the tensor, in file `as` of layout sharded; -1: in the global file, or in
 * its own. */
int rewrite_add(rewrite *w, const reader_tensor *t, const dcp_box *box, int as, dcp_error *err);

/* w->progress must be set before the mover is called. Its `prove` is collective. */
save_mover rewrite_mover(rewrite *w);

void rewrite_free(rewrite *w);
