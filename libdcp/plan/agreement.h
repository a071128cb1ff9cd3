/* What all ranks must have the same: the list of tensors, and the bytes of boxes that several of
 * them hold. Says which ranks have something else. */
#pragma once

#include "comm/vote.h"
#include "core/state_dict.h"
#include "plan/boxes.h"

/* Collective. Checks that all ranks have the same tensors (sorted by path): names, dtypes and
 * shapes. DCP_ERR_MISMATCH names the first tensor that differs and the ranks. */
int plan_tensors(dcp_comm *comm, state_tensor *const *sorted, size_t n, dcp_error *err);
/* Does the same after a vote that found out whether all ranks' fingerprints are equal: no rank
 * waits for another one if they are. */
int plan_tensors_check(dcp_comm *comm, state_tensor *const *sorted, size_t n, bool are_equal,
                       dcp_error *err);

/* Returns a checksum of names, dtypes and shapes. Not collective. */
uint64_t plan_fingerprint(state_tensor *const *sorted, size_t n);

/* Checking that boxes which several ranks hold have the same bytes everywhere. Each holder sends
 * the tensor's arbiter a checksum of its box; an arbiter compares those of equal boxes. */

#define PLAN_REPLICA_BLOCK ((uint64_t)4 << 20) /* bytes of a box per checksum */

/* Checksums of the blocks of a rank's replicated boxes. */
typedef struct plan_sums {
    uint64_t *blocks; /* raw ones (core/crc64.h) */
    size_t *first;    /* box k's are blocks[first[k]] to blocks[first[k + 1] - 1] */
} plan_sums;

/* Collective, for a plan that has replicas. DCP_ERR_MISMATCH names the first box that differs, the
 * first of its blocks that does, and the ranks. *differ becomes the number of boxes, each counted
 * once, that are not the same everywhere. */
int plan_replicas_compare(dcp_comm *comm, state_tensor *const *sorted, const plan_boxes *plan,
                          const plan_sums *sums, uint64_t *differ, dcp_error *err);
