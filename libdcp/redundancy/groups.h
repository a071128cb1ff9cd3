/* Redundancy groups: who protects whom, and the erasure code of a group. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "dcp/comm.h"

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

/* The erasure code of a group: arithmetic over GF(2^8), no files.
 *
 * A group of g members has g stripes. A stripe of rs(k) has a strip on every member. k of its
 * strips are redundant. The other g - k are the next segments of those members' data. From stripe
 * to stripe the redundant strips move on by one member, so that all members hold the same number of
 * them (as in SCR, "Reed-Solomon"). A stripe of partner has two strips: a member's whole file, and
 * its copy on the next member. The rows of a stripe are its strips, data first. Any
 * redundancy_code_data_strips() of them give the others. */

typedef struct code_group {
    redundancy_kind kind;
    int members, lost; /* g and k */
} code_group;

typedef struct code_strip {
    int member;
    int redundant; /* 0: of the member's file; 1: of its redundancy file */
    int index;     /* which strip of that file */
} code_strip;

/* Strips in a stripe, and how many of them are data. */
int redundancy_code_strips(const code_group *g);
int redundancy_code_data_strips(const code_group *g);

/* The strips of stripe number `number` (0 to members - 1), by row. */
void redundancy_code_stripe(const code_group *g, int number,
                            code_strip *out /* redundancy_code_strips() */);

/* coeffs[redundancy_code_data_strips()]: what row `wanted` is as a sum of the rows `present`, which
 * are redundancy_code_data_strips() different ones. 0, or -1 where memory is short. */
int redundancy_code_solve(const code_group *g, const int *present, int wanted,
                          unsigned char *coeffs);

/* out[i][0 .. bytes) = sum over j of coeffs[i * n_in + j] * in[j]. */
void redundancy_code_combine(uint64_t bytes, int n_in, int n_out, unsigned char *coeffs,
                             unsigned char **in, unsigned char **out);
