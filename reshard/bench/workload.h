/* The benchmark's state: the tensors of a decoder with L layers, hidden size H and vocabulary V,
 * three times (parameter and two moments), fp32, cut on dimension 0; and this rank's part of it in
 * memory, filled so that an element in a wrong place shows. */
#ifndef RESHARD_BENCH_WORKLOAD_H
#define RESHARD_BENCH_WORKLOAD_H

#include <stddef.h>

#include <dcp/dcp.h>

typedef struct bench_tensor {
    char path[96];
    dcp_tensor tensor; /* its path points to the one above */
    dcp_box box;       /* this rank's */
    uint32_t *data;    /* page aligned, in the arena; NULL where the box is empty */
} bench_tensor;

typedef struct bench_workload {
    bench_tensor *tensors;
    size_t n;
    uint64_t bytes; /* of all ranks */
    char *arena;
    uint64_t arena_bytes;
    dcp_state *state;
} bench_workload;

/* The memory is touched, so that its pages are there. Not collective. */
int bench_workload_create(bench_workload *work, uint64_t layers, uint64_t hidden, uint64_t vocab,
                          int rank, int ranks, dcp_error *err);
void bench_workload_destroy(bench_workload *work);

/* Gives each element the value that its tensor and place determine. */
void bench_workload_fill(bench_workload *work);
/* Overwrites all. */
void bench_workload_clear(bench_workload *work);
/* The path of the first tensor whose elements are not as filled; NULL: all are. */
const char *bench_workload_check(const bench_workload *work);

#endif
