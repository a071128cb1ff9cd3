/* The survey of the files that are left of a step that was saved with redundancy. It is the same on
 * all ranks, except for paths. Files are numbered: shard f is file f, its redundancy file is file
 * world + f. */
#pragma once

#include "comm/comm.h"
#include "redundancy/parity.h"

/* The information about a shard in redundancy files. */
typedef struct survey_shard {
    int leader; /* the shard of member 0 of its group; -1: no file of its group is left */
    int member, members;
    uint64_t bytes, crc;
} survey_shard;

/* Where a file is, or will be after redundancy_reconstruct. */
typedef struct survey_place {
    int rank;    /* the rank that has the file intact; -1: lost */
    int damaged; /* a rank that has it damaged; -1: none */
    char *path;  /* on `rank`: from a survey_found or of a rebuilt file; NULL elsewhere */
    int is_rebuilt;
} survey_place;

/* A file that this rank sees. */
typedef struct survey_found {
    char *path;
    redundancy_kind kind; /* according to its name; REDUNDANCY_NONE: a shard */
    uint64_t number;
    int world;
    int usable, checked;
    parity_header *header; /* for a usable redundancy file */
} survey_found;

typedef struct redundancy_survey {
    int every_byte;
    redundancy_kind kind;
    int lost, world; /* members of a group that may be lost; shards, as saved */
    uint64_t step, set;
    uint64_t *domains; /* each rank's domain */
    survey_found *found;
    size_t n_found;
    survey_shard *shards; /* [world] */
    survey_place *files;  /* [2 * world] */
    comm_stop stop;       /* for this rank's reading while the survey is opened */
    /* about the first file that could not be looked up; status DCP_OK: none */
    dcp_error unread;
} redundancy_survey;

/* Describes the group that the shard `leader` leads, and lists the shards of its members. */
void redundancy_survey_group(const redundancy_survey *s, int leader, code_group *out,
                             int *numbers /* REDUNDANCY_MAX_MEMBERS */);

/* Makes the header of that group's redundancy file number `member`, except for table_crc. */
void redundancy_survey_header(const redundancy_survey *s, int leader, int member,
                              parity_header *out);

/* Looks for the files of one step on all ranks. The number of ranks may differ from that of the
 * save. Collective.
 *
 *   folders, n  the step's folders that this rank sees, `DIR/step-N`; n may be 0. A folder that
 *               does not exist counts as empty. Copied. Ranks of a node may name the same folders.
 *   domain      number of this rank's failure domain, as for redundancy_groups_collect: files are
 *               rebuilt in domains that hold nothing else of their group, if there are any
 *   every_byte  1: each file is read by one rank and compared with its checksums, and a damaged
 *               file counts as lost; 0: only sizes and headers are checked, which is quick
 *
 * Losses are not a failure here. Returns DCP_ERR_NOT_FOUND if no rank sees an intact redundancy
 * file. Files that could not be looked up are not used; returns DCP_ERR_IO if all files that
 * describe the others are among them. */
int redundancy_survey_open(dcp_comm *comm, const char *const *folders, size_t n, uint64_t domain,
                           int every_byte, redundancy_survey **out, dcp_error *err);

void redundancy_survey_close(redundancy_survey *survey); /* NULL is ignored */

/* Returns DCP_OK if the step is complete or can be rebuilt. The same result on all ranks, without
 * communication. Returns DCP_ERR_NOT_FOUND, or DCP_ERR_CORRUPT if files are damaged, if it can't be
 * rebuilt; the message names the group, its lost members and how many may be lost. DCP_ERR_IO: the
 * step may be complete, but some of it could not be looked up. */
int redundancy_survey_check(const redundancy_survey *survey, dcp_error *err);

/* Counts the shards and the redundancy files that can't be used; either may be NULL. */
void redundancy_survey_lost(const redundancy_survey *survey, int *shards, int *redundancy_files);
