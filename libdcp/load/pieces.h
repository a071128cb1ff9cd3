/* The pieces that a load moves. */
#pragma once

#include <stdint.h>

#include "dcp/error.h"

struct load_job;

/* Not collective, once the boxes are known, where this rank has all rows of shards: looks for the
 * datasets near them. */
int load_pieces_look(struct load_job *l, dcp_error *err);

/* Not collective: checksums, files and queue. Before the other functions. */
int load_pieces_prepare(struct load_job *l, dcp_error *err);
/* Then, before the load's boxes are judged: *end tensors' pieces suit this rank at once. Their
 * datasets are open then. */
int load_pieces_measure(struct load_job *l, uint64_t *end, dcp_error *err);
void load_pieces_free(struct load_job *l);

/* Collective. Fills the boxes of all pieces and adds to the checksums. Where not all rows are here,
 * the status is this rank's, to be agreed on. */
int load_pieces_move_all(struct load_job *l, dcp_error *err);
