/* Who protects whom in a private store with redundancy.
 *
 * The files of such a step (layout sharded) lie on several nodes, each of which sees only its own.
 * With redundancy the step survives the loss of some failure domains with all their nodes. Ranks
 * form groups whose members are in different domains. Beside its shard, every member keeps a
 * redundancy file: `partner-RRRRR-of-NNNNN.bin`, a copy of the file of the member before it in the
 * group, or `parity-RRRRR-of-NNNNN.bin`, strips of a Reed-Solomon code over the group's files
 * (docs/format.md). This folder knows files, folders and a communicator; no stores.
 *
 *     saving    redundancy_parse, redundancy_groups_collect once; after every rank's shard is
 *               written and before publication: redundancy_encode
 *     loading   redundancy_survey_open, redundancy_survey_check: can this step be made whole?
 *               redundancy_reconstruct writes what is lost; then the step is there as it was saved
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "dcp/comm.h"

#define REDUNDANCY_MAX_LOST 16    /* the largest K of rs(K) */
#define REDUNDANCY_MAX_MEMBERS 64 /* of a group */

typedef enum redundancy_kind {
    REDUNDANCY_NONE,
    REDUNDANCY_PARTNER, /* survives any loss without two neighbours of a group's ring */
    REDUNDANCY_RS,      /* survives the loss of any `lost` members of every group */
} redundancy_kind;

typedef struct redundancy_spec {
    redundancy_kind kind;
    int lost; /* none: 0, partner: 1, rs(K): K */
} redundancy_spec;

/* "none", "partner" or "rs(K)"; NULL and "" are none. DCP_ERR_ARG says what is allowed. */
int redundancy_parse(const char *text, redundancy_spec *out, dcp_error *err);

/* Who protects whom: a partition of the ranks, the same on all of them. */
typedef struct redundancy_groups {
    redundancy_spec spec;
    int world, n; /* ranks, groups; 0 groups for none */
    int *order;   /* [world]: member m of group g is rank order[m * n + g] */
    int *place;   /* [world]: the rank's place in `order` */
} redundancy_groups;

/* Groups of nearly equal size, of which no two members are in the same failure domain.
 *   domains     [world]: ranks with equal numbers are in one domain, and are lost together
 *   group_size  members of a group, at most REDUNDANCY_MAX_MEMBERS; 0: 8, or 2 K where that is
 *               more. Groups are smaller where there are fewer domains, and larger where else one
 *               would have too few members.
 * DCP_ERR_ARG: there can't be spec->lost + 1 members in different domains in every group; the
 * message says how many domains are needed, or how many ranks one of them holds. */
int redundancy_groups_make(const redundancy_spec *spec, const uint64_t *domains, int world,
                           int group_size, redundancy_groups **out, dcp_error *err);

/* Collective: the same with the default size, from the number of this rank's domain. */
int redundancy_groups_collect(dcp_comm *comm, const redundancy_spec *spec, uint64_t domain,
                              redundancy_groups **out, dcp_error *err);

void redundancy_groups_free(redundancy_groups *groups); /* NULL is ignored */

/* Members of group g; the group of a rank, and its number in that group. */
int redundancy_group_members(const redundancy_groups *groups, int g);
int redundancy_group_of(const redundancy_groups *groups, int rank, int *member);
