/* Proving that what arrived in memory is what was saved, by the sums of all ranks. */
#pragma once

#include "dcp/error.h"

struct load_job;

/* Collective, after load_pieces_move_all, which returned `status`.
 * DCP_ERR_CORRUPT names tensor and block. */
int load_compare_sums(struct load_job *l, int status, dcp_error *err);
