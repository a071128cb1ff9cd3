/* A save whose bytes come from a checkpoint's files: what dcp_rewrite and the filling of a store
 * share. rewrite_make, a view of the old files' datasets (reader/view.h), rewrite_add for each box;
 * then a save of w->state with rewrite_mover. */
#pragma once

#include "rewrite/move.h"
#include "save/image.h"

/* Not collective. Room for that many boxes, and for tensor data while they are moved: a part of 4
 * MiB takes a fourth of it at least. To be freed in either case; `from` and `view` are as they
 * were. */
int rewrite_make(rewrite *w, size_t boxes, uint64_t memory_bytes, dcp_error *err);

/* This rank's box of the tensor, in file `as` of layout sharded; -1: in the global one, or its own.
 */
int rewrite_add(rewrite *w, const reader_tensor *t, const dcp_box *box, int as, dcp_error *err);

/* Before it is called, w->progress is set. Its `prove` is collective. */
save_mover rewrite_mover(rewrite *w);

void rewrite_free(rewrite *w);
