/* A world of many ranks in one process, of which one runs at a time. What the others would send is
 * what they did send when they ran: passes over all ranks record one all-to-all after the other.
 * All-reduces of status and arguments are answered with the rank's own, since all agree; rank 0
 * runs first in each pass, and the others get what it broadcast. */
#ifndef TESTS_BENCH_SCALE_WORLD_H
#define TESTS_BENCH_SCALE_WORLD_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "dcp/dcp.h"

#define NEED(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);              \
            exit(3);                                                                               \
        }                                                                                          \
    } while (0)

#define WORLD_LETTERS 4 /* all-to-alls that can be recorded */

/* What one rank sent in one all-to-all to the ranks of the sample, one after the other. */
typedef struct letter {
    unsigned char *data;
    uint64_t *starts; /* a member of the sample, and the end */
} letter;

typedef struct world {
    int size, rank;
    const int *sample; /* ranks that are to run to the end, ascending */
    int n_sample;
    letter *letters[WORLD_LETTERS]; /* by sender */
    int recorded, calls;            /* all-to-alls: that can be answered; of this run so far */
    int recording;                  /* a run ends at the first all-to-all that can't be answered */
    unsigned char *said[64];        /* rank 0's broadcasts in this pass */
    int n_said;
} world;

void world_make(world *w, int size, const int *sample, int n_sample);
void world_free(world *w);

/* Begins the run of a rank; `comm` lives until it is destroyed. Rank 0 begins a pass. */
dcp_comm *world_run(world *w, int rank);
/* After a recording pass over all ranks: its all-to-all can be answered from now on. */
void world_recorded(world *w);

#endif
