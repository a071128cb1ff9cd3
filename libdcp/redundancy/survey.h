/* What is left of a step that was saved with redundancy: the same on all ranks, but for paths.
 * Files are numbered: shard f is file f, the redundancy file beside it is file world + f. */
#pragma once

#include "comm/comm.h"
#include "redundancy/parity.h"

/* What redundancy files know of a shard. */
typedef struct survey_shard {
    int leader; /* the shard of member 0 of its group; -1: no file of its group is left */
    int member, members;
    uint64_t bytes, crc;
} survey_shard;

/* Where a file is, or after redundancy_reconstruct will be. */
typedef struct survey_place {
    int rank;    /* that has the file intact; -1: lost */
    int damaged; /* a rank that has it damaged; -1: none has */
    char *path;  /* on `rank`: of a survey_found, or of a file that was rebuilt; NULL on others */
    int is_rebuilt;
} survey_place;

/* A file that this rank sees. */
typedef struct survey_found {
    char *path;
    redundancy_kind kind; /* by its name; none: a shard */
    uint64_t number;
    int world;
    int usable, checked;
    parity_header *header; /* of a redundancy file that is usable */
} survey_found;

typedef struct redundancy_survey {
    int every_byte;
    redundancy_kind kind;
    int lost, world; /* members of a group that may be lost; shards, as saved */
    uint64_t step, set;
    uint64_t *domains; /* of ranks */
    survey_found *found;
    size_t n_found;
    survey_shard *shards; /* [world] */
    survey_place *files;  /* [2 * world] */
    comm_stop stop;       /* of the rank's reading, while it is opened */
    dcp_error unread;     /* of the first file that could not be looked at; status DCP_OK: none */
} redundancy_survey;

/* The group of the shard `leader`, which leads one, and the shards of its members. */
void redundancy_survey_group(const redundancy_survey *s, int leader, code_group *out,
                             int *numbers /* REDUNDANCY_MAX_MEMBERS */);

/* The header of that group's redundancy file number `member`, but for table_crc. */
void redundancy_survey_header(const redundancy_survey *s, int leader, int member,
                              parity_header *out);

/* Collective. Looks for the files of one step on all ranks, which need not be as many as saved it.
 *
 *   folders, n  the step's folders that this rank sees, `DIR/step-N`; none where n is 0. One that
 *               does not exist is as one without files. Copied. Ranks of a node may name the same.
 *   domain      number of this rank's failure domain, as for redundancy_groups_collect: what is
 *               rebuilt goes to domains that hold nothing else of its group, where there are such
 *   every_byte  1: files are read and compared with their checksums, each by one rank, and a
 *               damaged one counts as lost; 0: only sizes and headers are, which is quick
 *
 * DCP_ERR_NOT_FOUND: no rank sees an intact redundancy file. Losses are no failure here. What could
 * not be looked at is not used, either; DCP_ERR_IO: it was so with what knows of the others. */
int redundancy_survey_open(dcp_comm *comm, const char *const *folders, size_t n, uint64_t domain,
                           int every_byte, redundancy_survey **out, dcp_error *err);

void redundancy_survey_close(redundancy_survey *survey); /* NULL is ignored */

/* Whether the step is whole or can be made so: the same answer on all ranks, without communication.
 * DCP_ERR_NOT_FOUND, or DCP_ERR_CORRUPT where files are damaged: it can't; the message names the
 * group, its lost members and how many may be lost. DCP_ERR_IO: it may be whole, but some of it
 * could not be looked at. */
int redundancy_survey_check(const redundancy_survey *survey, dcp_error *err);

/* How many shards, and how many redundancy files, can't be used; either may be NULL. */
void redundancy_survey_lost(const redundancy_survey *survey, int *shards, int *redundancy_files);
