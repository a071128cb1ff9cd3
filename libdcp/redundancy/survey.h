/* What is left of a step: the same on all ranks, but for paths. Files are numbered: shard f is file
 * f, the redundancy file beside it is file world + f. */
#ifndef DCP_REDUNDANCY_SURVEY_H
#define DCP_REDUNDANCY_SURVEY_H

#include "comm/comm.h"
#include "redundancy/parity.h"

/* What redundancy files know of a shard. */
typedef struct survey_shard {
    int leader; /* the shard of member 0 of its group; -1: no file of its group is left */
    int member, members;
    uint64_t bytes, crc;
} survey_shard;

typedef struct survey_place {
    int rank;    /* that has the file intact; -1: lost */
    int damaged; /* a rank that has it damaged; -1: none has */
    char *path;  /* on `rank`: of a survey_found, or of a file that was rebuilt */
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

struct redundancy_survey {
    int every_byte;
    redundancy_kind kind;
    int lost, world;
    uint64_t step, set;
    uint64_t *nodes; /* of ranks */
    survey_found *found;
    size_t n_found;
    survey_shard *shards; /* [world] */
    survey_place *files;  /* [2 * world] */
};

/* The group of the shard `leader`, which leads one, and the shards of its members. */
void survey_group(const redundancy_survey *s, int leader, code_group *out,
                  int *numbers /* REDUNDANCY_MAX_MEMBERS */);

/* The header of that group's redundancy file number `member`, but for table_crc. */
void survey_header(const redundancy_survey *s, int leader, int member, parity_header *out);

/* The file that a strip of a group is in. */
int survey_file_of(const redundancy_survey *s, const int *numbers, const code_strip *at);

/* elect.c. Collective: fills step, set, world, kind and lost by what most files of s->found say.
 * DCP_ERR_NOT_FOUND: nobody has found any. */
int survey_elect(dcp_comm *comm, redundancy_survey *s, dcp_error *err);

/* Whether the redundancy file of that header is of this step and save. */
int survey_has(const redundancy_survey *s, const parity_header *h);

/* found.c: fills s->found with the files of a step that the folders hold. */
int survey_find(redundancy_survey *s, const char *const *folders, size_t n, dcp_error *err);
void survey_found_free(redundancy_survey *s);

#endif
