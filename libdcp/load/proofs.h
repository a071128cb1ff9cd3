/* Proof that what a load left in memory is what was saved. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "dcp/error.h"

/* Proving the tensors that the ranks' boxes don't cover exactly: parts of tensors, and boxes that
 * overlap. If any rank needs a byte of a block, one rank sums all its bytes, as a piece that is
 * stored nowhere. So no block is read twice, however many ranks need parts of it. */

struct load_job;
struct move_piece;
struct reader_dataset;

/* Returns 1 if such tensors exist; the same on all ranks. */
int load_proofs_are_due(const struct load_job *l);

/* Collective, if they are due: chooses which rank sums which block, for the functions below. The
 * ranks that need a block take turns. */
int load_proofs_agree(struct load_job *l, dcp_error *err);

/* Adds the pieces that this rank sums of the tensor, whose datasets are open, to `out`, and returns
 * their number; with NULL only returns that. */
size_t load_proofs_of(const struct load_job *l, size_t tensor, struct move_piece *out);

/* Proving what arrived in memory by the sums of all ranks. */

struct load_job;

/* Collective, after load_pieces_move_all, which returned `status`.
 * DCP_ERR_CORRUPT names tensor and block. */
int load_compare_sums(struct load_job *l, int status, dcp_error *err);
