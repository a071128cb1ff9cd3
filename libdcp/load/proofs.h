/* Proves that the bytes that a load left in memory are those that were saved. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dcp/error.h"

/* Proves the tensors that the ranks' boxes don't cover exactly, because only parts are loaded or
 * because boxes overlap. For each block of which some rank needs a byte, one rank sums all bytes of
 * the block, as a piece that is not stored anywhere. So no block is read twice for this, however
 * many ranks need parts of it. */

struct load_job;
struct move_piece;
struct reader_dataset;

/* Returns true if there are such tensors. The result is the same on all ranks. */
bool load_proofs_are_due(const struct load_job *l);

/* Collective; called only if load_proofs_are_due. Chooses which rank sums each block, for the
 * functions below. The choice among the ranks that need a block rotates with the block's number. */
int load_proofs_agree(struct load_job *l, dcp_error *err);

/* Writes one piece to `out` for each block of the tensor that this rank sums, and returns the
 * number of pieces. If `out` is NULL, writes nothing. The tensor's datasets must be open. */
size_t load_proofs_of(const struct load_job *l, size_t tensor, struct move_piece *out);

/* Proves what arrived in memory by comparing the sums of all ranks with the stored checksums. */

struct load_job;

/* Collective. Called after load_pieces_move_all, which returned `status`. The message of
 * DCP_ERR_CORRUPT names the tensor and the block. */
int load_compare_sums(struct load_job *l, int status, dcp_error *err);
