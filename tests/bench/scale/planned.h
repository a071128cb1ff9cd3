/* One rank's dcp_save or dcp_load from the call to the point where the first byte would move: there
 * it is ended. Its files are not touched. */
#ifndef TESTS_BENCH_SCALE_PLANNED_H
#define TESTS_BENCH_SCALE_PLANNED_H

#include "reader/checkpoint.h"
#include "store/store.h"

typedef struct planned_cost {
    double cpu_ms;     /* without HDF5's layout */
    size_t peak_bytes; /* of the heap */
} planned_cost;

typedef struct planned {
    planned_cost agreed; /* a save: when the plan stands, as dcp_report's plan_s */
    planned_cost all;    /* to the end */
    planned_cost layout; /* HDF5's layout of the file: rank 0's, once; what it keeps */
    size_t kept_bytes;   /* a save: from save to save */
    size_t pieces;       /* to move */
    int reached;         /* the first byte's turn came */
} planned;

/* CPU time of this thread. */
double planned_clock_ms(void);

void planned_save(dcp_store *store, const dcp_state *state, planned *out, dcp_error *err);
void planned_load(dcp_checkpoint *ckpt, const dcp_state *state, planned *out, dcp_error *err);

#endif
