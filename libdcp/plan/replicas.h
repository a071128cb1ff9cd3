/* Whether boxes that several ranks hold have the same bytes everywhere. Each holder sends the
 * tensor's arbiter a checksum of its box; an arbiter compares those of equal boxes. */
#pragma once

#include "plan/boxes.h"

#define PLAN_REPLICA_BLOCK                                                                         \
    ((uint64_t)4 << 20) /* bytes of a box that have a checksum of their own */

/* Checksums of the blocks of a rank's replicated boxes. */
typedef struct plan_sums {
    uint64_t *blocks; /* raw ones (core/crc64.h) */
    size_t *first;    /* box k's are blocks[first[k]] to blocks[first[k + 1] - 1] */
} plan_sums;

/* Collective, of a plan that has replicas. DCP_ERR_MISMATCH names the first box that differs, the
 * first of its blocks that does, and the ranks; *differ (also where there are none): the number of
 * boxes, each counted once, that are not the same everywhere. */
int plan_replicas_compare(dcp_comm *comm, state_tensor *const *sorted, const plan_boxes *plan,
                          const plan_sums *sums, uint64_t *differ, dcp_error *err);
