/* Checks what must be the same on all ranks: the list of tensors, and the bytes of boxes that
 * several ranks hold. Errors name the ranks that differ. */
#pragma once

#include <stdbool.h>

#include "comm/vote.h"
#include "core/state_dict.h"
#include "plan/boxes.h"

/* Collective. Checks that all ranks have the same tensors (sorted by path): names, dtypes and
 * shapes. The message of DCP_ERR_MISMATCH names the first tensor that differs, and the ranks. */
int plan_tensors(dcp_comm *comm, state_tensor *const *sorted, size_t n, dcp_error *err);
/* Does the same after a vote that found out whether the fingerprints of all ranks are equal. If
 * they are, no rank waits for another one. */
int plan_tensors_check(dcp_comm *comm, state_tensor *const *sorted, size_t n, bool are_equal,
                       dcp_error *err);

/* Returns a checksum of names, dtypes and shapes. Not collective. */
uint64_t plan_fingerprint(state_tensor *const *sorted, size_t n);

/* Checks that a box that several ranks hold has the same bytes on all of them. Each holder sends a
 * checksum of its box to the tensor's arbiter, which compares the checksums of equal boxes. */

#define PLAN_REPLICA_BLOCK ((uint64_t)4 << 20) /* bytes of a box per checksum */

/* Checksums of the blocks of a rank's replicated boxes. */
typedef struct plan_sums {
    uint64_t *blocks; /* the raw checksums (core/crc64.h) of the blocks of all boxes */
    size_t *first;    /* box k's checksums are blocks[first[k]] to blocks[first[k + 1] - 1] */
} plan_sums;

/* Collective. Compares the replicas of a plan that has replicas. The message of DCP_ERR_MISMATCH
 * names the first box that differs, the first block of the box that differs, and the ranks. *differ
 * becomes the number of boxes that are not the same on all their holders. Each box is counted once,
 * however many ranks hold it. */
int plan_replicas_compare(dcp_comm *comm, state_tensor *const *sorted, const plan_boxes *plan,
                          const plan_sums *sums, uint64_t *differ, dcp_error *err);
