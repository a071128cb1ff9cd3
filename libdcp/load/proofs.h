/* What proves the tensors that the ranks' boxes don't cover exactly: parts of tensors, and boxes
 * that overlap. Of each block that some rank wants a byte of, one rank sums all bytes, as a piece
 * that is kept nowhere. So no block is read twice, whoever wants parts of it. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "dcp/error.h"

struct load_job;
struct move_piece;
struct step_dataset;

/* 1 where there are such tensors; the same on all ranks. */
int load_proofs_are_due(const struct load_job *l);

/* Collective, where they are due: chooses who sums which block, for the functions below. Those who
 * want something of a block take turns. */
int load_proofs_agree(struct load_job *l, dcp_error *err);

/* Adds the pieces that this rank sums of the tensor, whose datasets are open, to `out` and returns
 * their number; NULL: only that. */
size_t load_proofs_of(const struct load_job *l, size_t tensor, struct move_piece *out);

/* Where, of all blocks of the tensors that are at home here, each selected tensor's begin; with the
 * end, malloc'd. */
int load_proofs_list(const struct load_job *l, uint64_t **first, dcp_error *err);

/* DCP_ERR_CORRUPT where a block of the dataset that was summed is not as it was saved; `sums` and
 * `provers` are those of the dataset, of all ranks. */
int load_proofs_compare(const struct step_dataset *p, const uint64_t *sums, const uint64_t *provers,
                        dcp_error *err);
