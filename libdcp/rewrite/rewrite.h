/* A save whose bytes come from a checkpoint's files; dcp_rewrite and the filling of a store use it.
 * Call rewrite_make, make a view of the old files' datasets (reader/view.h), and call rewrite_add
 * for each box. Then save w->state with rewrite_mover. */
#pragma once

#include "rewrite/move.h"
#include "save/image.h"

/* Allocates memory for `boxes` boxes. memory_bytes limits the memory for tensor data that is being
 * moved; each batch uses a fourth of it (move.c). Not collective. *w must be freed whether or not
 * the call succeeds. Leaves w->from and w->view unchanged. */
int rewrite_make(rewrite *w, size_t boxes, uint64_t memory_bytes, dcp_error *err);

/* Adds a box of the tensor; this rank writes the box. `as` is the number of the shard; -1: the file
 * of layout global, or this rank's own shard. */
int rewrite_add(rewrite *w, const reader_tensor *t, const dcp_box *box, int as, dcp_error *err);

/* Returns the mover of the rewrite. w->progress must be set before the mover is called. The mover's
 * `prove` is collective. */
save_mover rewrite_mover(rewrite *w);

void rewrite_free(rewrite *w);
