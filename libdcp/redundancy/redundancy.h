/* Redundancy of private stores: steps of layout sharded whose files lie on several nodes, each of
 * which sees only its own, survive the loss of some of the nodes.
 *
 * Ranks form groups whose members are on different nodes. Beside its shard, every member keeps a
 * redundancy file: `partner-RRRRR-of-NNNNN.bin`, a copy of the file of the member before it in the
 * group, or `parity-RRRRR-of-NNNNN.bin`, strips of a Reed-Solomon code over the group's files
 * (docs/format.md). This part knows files, folders and a communicator; no stores.
 *
 *     saving    redundancy_parse, redundancy_groups_collect once; after every rank's shard is
 *               written and before publication: redundancy_encode
 *     loading   redundancy_survey_open, redundancy_survey_check: can this step be made whole?
 *               redundancy_rebuild writes what is lost; then the step is there as it was saved */
#ifndef DCP_REDUNDANCY_REDUNDANCY_H
#define DCP_REDUNDANCY_REDUNDANCY_H

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

/* Groups of nearly equal size, of which no two members are on the same node.
 *   nodes       [world]: ranks with equal numbers are on one node, and are lost together
 *   group_size  members of a group, at most REDUNDANCY_MAX_MEMBERS; 0: 8, or 2 K where that is
 *               more. Groups are smaller where there are fewer nodes, and larger where else one
 *               would have too few members.
 * DCP_ERR_ARG: there can't be spec->lost + 1 members on different nodes in every group; the message
 * says how many nodes are needed, or which holds too many of the ranks. */
int redundancy_groups_make(const redundancy_spec *spec, const uint64_t *nodes, int world,
                           int group_size, redundancy_groups **out, dcp_error *err);

/* Collective: the same with the default size, from `node`, the number of this rank's node. */
int redundancy_groups_collect(dcp_comm *comm, const redundancy_spec *spec, uint64_t node,
                              redundancy_groups **out, dcp_error *err);

void redundancy_groups_free(redundancy_groups *groups); /* NULL is ignored */

/* Members of group g; the group of a rank, and its number in that group. */
int redundancy_group_members(const redundancy_groups *groups, int g);
int redundancy_group_of(const redundancy_groups *groups, int rank, int *member);

/* Collective. Writes this rank's redundancy file into `folder`, where its shard lies already,
 * `shard-RRRRR-of-NNNNN.h5` with its rank and the communicator's size, of any length and complete.
 * The file is durable on return, its folder's entry as well.
 *   folder  this rank's: `DIR/.tmp-step-N` of its node's directory; ranks of a node share it
 *   step    is kept in the file
 * Extra memory: 16 MiB a rank. Nothing happens where groups->spec is none. On failure of any rank
 * all return its status, and the file is not there. */
int redundancy_encode(dcp_comm *comm, const redundancy_groups *groups, const char *folder,
                      uint64_t step, dcp_error *err);

/* What is left of a step that was saved with redundancy. */
typedef struct redundancy_survey redundancy_survey;

/* Collective. Looks for the files of one step on all ranks, which need not be as many as saved it.
 *
 *   folders, n  the step's folders that this rank sees, `DIR/step-N`; none where n is 0. One that
 *               does not exist is as one without files. Copied. Ranks of a node may name the same.
 *   node        number of this rank's node, as for redundancy_groups_collect: what is rebuilt goes
 *               to nodes that hold nothing else of its group, where there are such
 *   every_byte  1: files are read and compared with their checksums, each by one rank, and a
 *               damaged one counts as lost; 0: only sizes and headers are, which is quick
 *
 * DCP_ERR_NOT_FOUND: no rank sees an intact redundancy file. Losses are no failure here. */
int redundancy_survey_open(dcp_comm *comm, const char *const *folders, size_t n, uint64_t node,
                           int every_byte, redundancy_survey **out, dcp_error *err);

void redundancy_survey_close(redundancy_survey *survey); /* NULL is ignored */

/* Whether the step is whole or can be made so: the same answer on all ranks, without communication.
 * DCP_ERR_NOT_FOUND, or DCP_ERR_CORRUPT where files are damaged: it can't; the message names the
 * group, its lost members and how many may be lost. */
int redundancy_survey_check(const redundancy_survey *survey, dcp_error *err);

/* The step and the number of shards, as saved. */
uint64_t redundancy_survey_step(const redundancy_survey *survey);
int redundancy_survey_world(const redundancy_survey *survey);

/* How many shards, and how many redundancy files, are missing or damaged; either may be NULL. */
void redundancy_survey_lost(const redundancy_survey *survey, int *shards, int *redundancy_files);

/* Where shard `number` (0 to world - 1) is, or after redundancy_rebuild will be: a rank, the same
 * answer on all ranks; -1: lost. */
int redundancy_survey_rank(const redundancy_survey *survey, int number);

/* On that rank: the shard's path, borrowed from the survey; NULL on others. */
const char *redundancy_survey_path(const redundancy_survey *survey, int number);

/* Collective. Writes all that is lost, shards and redundancy files, byte by byte as they were
 * saved, durably, each under a temporary name until its checksum is proved.
 *
 *   survey  one of every byte. It knows afterwards where the rebuilt files are.
 *   folder  where this rank puts what it rebuilds; made where it is missing (its parent is not). A
 *           damaged file is replaced where it lies.
 *
 * Extra memory: 16 MiB a rank. The failures of redundancy_survey_check, before anything is written;
 * DCP_ERR_NO_SPACE, DCP_ERR_IO: files that were whole by then stay, and it may be tried again. */
int redundancy_rebuild(dcp_comm *comm, redundancy_survey *survey, const char *folder,
                       dcp_error *err);

/* What a check of redundancy files tells while it goes on. */
typedef struct redundancy_reader {
    void *ctx;
    void (*on_damage)(void *ctx, const char *line); /* a line for each */
    void (*on_read)(void *ctx, uint64_t bytes);     /* so many more were read; may be NULL */
} redundancy_reader;

/* Not collective. Reads the redundancy files in the folder of a step: every byte of them, and that
 * names, step and headers agree. A folder without such files is fine. Returns failures to read. */
int redundancy_verify(const char *folder, const redundancy_reader *reader, dcp_error *err);

/* Bytes of the redundancy files in a folder, 0 where it can't be read. */
uint64_t redundancy_bytes(const char *folder);

#endif
