/* A step being verified: what verify.c, verify_find.c and verify_judge.c share. */
#ifndef DCP_LOAD_VERIFY_H
#define DCP_LOAD_VERIFY_H

#include "dcp/inspect.h"
#include "load/tally.h"
#include "step/checkpoint.h"

typedef struct verifier {
    dcp_comm *comm;
    const dcp_verify_options *options;
    dcp_checkpoint *ckpt;
    const char *path; /* the step's folder */
    tally *sums;
    uint64_t file_bytes, redundancy_bytes, done, damages;
    int usable;  /* the tables are right and fit together */
    int is_part; /* the folder of a private store keeps some of the step's shards */
} verifier;

/* Reports a damage; rank 0 alone speaks. */
void verify_damage(verifier *v, const char *what);

/* A failure that is damage is reported and DCP_OK returned, another one ends the check. */
int verify_absorb(verifier *v, int status, const dcp_error *e);

/* Not collective. Finds the files of the step in the folder `path` and fills layout and files of
 * v->ckpt; none where it lacks some, which is reported. */
int verify_find(verifier *v, const char *path, dcp_error *err);

/* Rank 0, once the sums of all ranks are joined: reports what they say of all files. */
int verify_judge(verifier *v, dcp_error *err);

#endif
