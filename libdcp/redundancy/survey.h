/* A survey of the remaining files of a step that was saved with redundancy. It is the same on all
 * ranks, except for paths. Files are numbered: shard f is file f, and its redundancy file is file
 * world + f. */
#pragma once

#include <stdbool.h>

#include "comm/comm.h"
#include "redundancy/parity.h"

/* What the redundancy files contain about a shard. */
typedef struct survey_shard {
    int leader; /* the shard of member 0 of its group; -1: no redundancy file of it is left */
    int member, members;
    uint64_t bytes, crc;
} survey_shard;

/* Where a file is, or will be after redundancy_reconstruct. */
typedef struct survey_place {
    int rank;       /* the rank that has the file intact; -1: lost */
    int damaged;    /* a rank that has a damaged copy of the file; -1: none */
    char *path;     /* on `rank`: the path of the file that was found or rebuilt; else NULL */
    bool is_proven; /* the damaged copy was read; otherwise reading it failed */
    bool is_rebuilt;
} survey_place;

/* A file that this rank sees. */
typedef struct survey_found {
    char *path;
    redundancy_kind kind; /* the kind of file, according to its name; REDUNDANCY_NONE: a shard */
    uint64_t number;
    int world;
    bool usable, checked;
    bool is_unread; /* not usable because it could not be read, which is no proof of damage */
    parity_header *header; /* for a usable redundancy file */
} survey_found;

typedef struct redundancy_survey {
    int every_byte;
    redundancy_kind kind;
    int lost, world; /* lost members that a group survives; number of shards */
    uint64_t step, set;
    uint64_t *domains; /* each rank's domain */
    survey_found *found;
    size_t n_found;
    survey_shard *shards; /* [world] */
    survey_place *files;  /* [2 * world] */
    comm_stop stop;       /* can cancel this rank's reading in redundancy_survey_open */
    /* the error of the first file that could not be read; status DCP_OK: none */
    dcp_error unread;
} redundancy_survey;

/* Describes the group that the shard `leader` leads, and lists the shards of its members. */
void redundancy_survey_group(const redundancy_survey *s, int leader, code_group *out,
                             int *numbers /* REDUNDANCY_MAX_MEMBERS */);

/* Makes the header of the redundancy file of member number `member` of the group that `leader`
 * leads, except for table_crc. */
void redundancy_survey_header(const redundancy_survey *s, int leader, int member,
                              parity_header *out);

/* Looks for the files of one step on all ranks. The number of ranks may differ from the number at
 * the save. Collective.
 *
 *   folders, n  the step's folders that this rank sees, `DIR/step-N`; n may be 0. A folder that
 *               does not exist counts as empty. Copied. Ranks of a node may name the same folders.
 *   domain      number of this rank's failure domain, as for redundancy_groups_collect. Files are
 *               rebuilt in domains that have no other files of their group, if such domains exist
 *   every_byte  1: each file is read by one rank and compared with its checksums, and a damaged
 *               file counts as lost; 0: only sizes and headers are checked, which is quick
 *
 * Lost files are not a failure here. Returns DCP_ERR_NOT_FOUND if no rank sees an intact redundancy
 * file. Files that could not be read for a reason other than damage are not used. Returns
 * DCP_ERR_IO if that leaves no redundancy file. */
int redundancy_survey_open(dcp_comm *comm, const char *const *folders, size_t n, uint64_t domain,
                           int every_byte, redundancy_survey **out, dcp_error *err);

void redundancy_survey_close(redundancy_survey *survey); /* NULL is ignored */

/* Returns DCP_OK if the step is complete or can be rebuilt. Returns the same result on all ranks,
 * without communication. If the step can't be rebuilt, returns DCP_ERR_CORRUPT if files are damaged
 * and DCP_ERR_NOT_FOUND otherwise; the message names the group, its lost members and how many
 * losses it survives. DCP_ERR_IO: the step may be complete, but some of its files could not be
 * read. */
int redundancy_survey_check(const redundancy_survey *survey, dcp_error *err);

/* Returns true if a rank has an intact copy of the file and another one a damaged copy, which a
 * load could read. This is so if the other node was away while the file was rebuilt elsewhere. */
bool redundancy_survey_mends(const redundancy_survey *survey, int file);

/* Counts the shards and the redundancy files that redundancy_reconstruct will write: those that are
 * lost, and those of which it mends a damaged copy. Either pointer may be NULL. */
void redundancy_survey_lost(const redundancy_survey *survey, int *shards, int *redundancy_files);
