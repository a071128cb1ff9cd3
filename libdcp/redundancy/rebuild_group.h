/* A group of which files are lost: which rank reads or writes each of its files, and those files.
 */
#ifndef DCP_REDUNDANCY_REBUILD_GROUP_H
#define DCP_REDUNDANCY_REBUILD_GROUP_H

#include "redundancy/output.h"
#include "redundancy/survey.h"

/* What a rebuild works on; all borrowed. */
typedef struct rebuild_site {
    dcp_comm *comm;
    redundancy_survey *survey;
    const char *folder; /* of this rank, for files that are lost; made where it is needed */
} rebuild_site;

/* A file of a group: read where it is, or written where it is lost. */
typedef struct rebuild_slot {
    int rank;
    strip_file in; /* on `rank`, where it is not lost */
    output out;    /* on `rank`, where it is */
} rebuild_slot;

typedef struct rebuild_group {
    int leader;
    code_group group;
    int numbers[REDUNDANCY_MAX_MEMBERS];           /* the members' shards */
    rebuild_slot slots[2][REDUNDANCY_MAX_MEMBERS]; /* shards, redundancy files */
} rebuild_group;

/* The group that shard `leader` leads, with a rank for every file, the same on all ranks. 1 where
 * any of its files is lost, else 0. Not collective, as all below. */
int rebuild_group_begin(const rebuild_site *at, int leader, rebuild_group *g);

/* Whether the member's shard, or its redundancy file, is lost. */
int rebuild_group_lacks(const rebuild_site *at, const rebuild_group *g, int redundant, int member);

/* Opens what this rank reads and writes of the group. rebuild_group_end closes it in either case,
 * and removes what was written and not finished. */
int rebuild_group_open(const rebuild_site *at, rebuild_group *g, dcp_error *err);

/* Gives this rank's new files their names. DCP_ERR_CORRUPT: a shard's checksum is not that which
 * the redundancy files know. */
int rebuild_group_finish(const rebuild_site *at, rebuild_group *g, dcp_error *err);

/* The survey knows the new files from now on, and owns their paths. */
void rebuild_group_tell(const rebuild_site *at, rebuild_group *g);

void rebuild_group_end(rebuild_group *g);

#endif
