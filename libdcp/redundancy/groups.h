/* Redundancy groups: which ranks protect each other, and the erasure code of a group. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dcp/comm.h"

/* Which ranks protect each other in a private store with redundancy.
 *
 * The files of a step in a private store (layout sharded) lie on several nodes. Each node sees only
 * its own files. With redundancy the step survives the loss of some failure domains with all their
 * nodes. Ranks form groups whose members are in different domains. In addition to its shard, every
 * member stores a redundancy file: `partner-RRRRR-of-NNNNN.bin`, a copy of the shard of the group's
 * previous member, or `parity-RRRRR-of-NNNNN.bin`, strips of a Reed-Solomon code over the group's
 * files (docs/format.md). The code in this folder uses files, folders and a communicator, but no
 * stores.
 *
 *     saving    redundancy_parse and redundancy_groups_collect once; redundancy_encode after every
 *               rank's shard is written and before publication
 *     loading   redundancy_survey_open and redundancy_survey_check: can this step be rebuilt?
 *               redundancy_reconstruct writes the lost files; then the step is as it was saved */

#define REDUNDANCY_MAX_LOST 16    /* the largest K of rs(K) */
#define REDUNDANCY_MAX_MEMBERS 64 /* per group */

typedef enum redundancy_kind {
    REDUNDANCY_NONE,
    /* survives any loss that does not include two neighbours in the ring of a group's members */
    REDUNDANCY_PARTNER,
    REDUNDANCY_RS, /* survives the loss of any `lost` members of every group */
} redundancy_kind;

typedef struct redundancy_spec {
    redundancy_kind kind;
    int lost; /* none: 0, partner: 1, rs(K): K */
} redundancy_spec;

/* Parses "none", "partner" or "rs(K)"; NULL and "" mean none. For any other text returns
 * DCP_ERR_ARG, with a message that lists the allowed texts. */
int redundancy_parse(const char *text, redundancy_spec *out, dcp_error *err);

/* A partition of the ranks into groups, the same on all ranks. */
typedef struct redundancy_groups {
    redundancy_spec spec;
    int world, n; /* how many ranks and groups there are; n is 0 without redundancy */
    int *order;   /* [world]: member m of group g is rank order[m * n + g] */
    int *place;   /* [world]: the rank's index in `order` */
} redundancy_groups;

/* Makes groups of nearly equal size, in which no two members are in the same failure domain.
 *   domains     [world]: ranks with equal numbers are in one domain, and are lost together
 *   group_size  members per group, at most REDUNDANCY_MAX_MEMBERS; 0: the larger of 8 and 2 K.
 *               Groups are smaller if there are fewer domains, and larger if a group would
 *               otherwise have too few members.
 * Returns DCP_ERR_ARG if not every group can have spec->lost + 1 members in different domains. The
 * message says how many domains are needed, or how many ranks the largest domain has. */
int redundancy_groups_make(const redundancy_spec *spec, const uint64_t *domains, int world,
                           int group_size, redundancy_groups **out, dcp_error *err);

/* Makes groups of the default size. Each rank passes the number of its own domain. Collective. */
int redundancy_groups_collect(dcp_comm *comm, const redundancy_spec *spec, uint64_t domain,
                              redundancy_groups **out, dcp_error *err);

void redundancy_groups_free(redundancy_groups *groups); /* NULL is ignored */

/* redundancy_group_members returns the number of members of group g. redundancy_group_of returns
 * the group of a rank, and sets *member to the rank's number among the group's members. */
int redundancy_group_members(const redundancy_groups *groups, int g);
int redundancy_group_of(const redundancy_groups *groups, int rank, int *member);

/* The erasure code of a group: arithmetic over GF(2^8), without files.
 *
 * A group of g members has g stripes. A stripe of rs(k) has one strip on every member: k strips are
 * redundant, and the other g - k are data, each the next segment of its member's file. From each
 * stripe to the next, the redundant strips move by one member, so all members hold the same number
 * of them (as in SCR, "Reed-Solomon"). A stripe of partner has two strips: a member's whole file,
 * and its copy on the next member. The rows of a stripe are its strips, data strips first. Any
 * redundancy_code_data_strips() rows determine the others. */

typedef struct code_group {
    redundancy_kind kind;
    int members, lost; /* g and k */
} code_group;

typedef struct code_strip {
    int member;
    bool redundant; /* false: in the member's file; true: in its redundancy file */
    int index;      /* number of the strip in that file */
} code_strip;

/* Return the number of strips in a stripe, and the number of data strips among them. */
int redundancy_code_strips(const code_group *g);
int redundancy_code_data_strips(const code_group *g);

/* Lists the strips of stripe `number` (0 to members - 1), in the order of rows. */
void redundancy_code_stripe(const code_group *g, int number,
                            code_strip *out /* redundancy_code_strips() */);

/* Computes n = redundancy_code_data_strips() coefficients: row `wanted` is the sum of the n
 * different rows present[i], each multiplied by coeffs[i]. Returns 0, or -1 if memory is short. */
int redundancy_code_solve(const code_group *g, const int *present, int wanted,
                          unsigned char *coeffs);

/* Computes out[i][0 .. bytes) = sum over j of coeffs[i * n_in + j] * in[j]. */
void redundancy_code_combine(uint64_t bytes, int n_in, int n_out, unsigned char *coeffs,
                             unsigned char **in, unsigned char **out);
