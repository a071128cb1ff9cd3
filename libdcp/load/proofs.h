/* Proof that what a load left in memory is what was saved. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "dcp/error.h"

/* What proves the tensors that the ranks' boxes don't cover exactly: parts of tensors, and boxes
 * that overlap. Of each block that some rank wants a byte of, one rank sums all bytes, as a piece
 * that is kept nowhere. So no block is read twice, whoever wants parts of it. */

struct load_job;
struct move_piece;
struct reader_dataset;

/* 1 where there are such tensors; the same on all ranks. */
int load_proofs_are_due(const struct load_job *l);

/* Collective, where they are due: chooses who sums which block, for the functions below. Those who
 * want something of a block take turns. */
int load_proofs_agree(struct load_job *l, dcp_error *err);

/* Adds the pieces that this rank sums of the tensor, whose datasets are open, to `out` and returns
 * their number; NULL: only that. */
size_t load_proofs_of(const struct load_job *l, size_t tensor, struct move_piece *out);

/* Proving that what arrived in memory is what was saved, by the sums of all ranks. */

struct load_job;

/* Collective, after load_pieces_move_all, which returned `status`.
 * DCP_ERR_CORRUPT names tensor and block. */
int load_compare_sums(struct load_job *l, int status, dcp_error *err);
