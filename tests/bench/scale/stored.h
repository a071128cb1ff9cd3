/* A checkpoint that is nowhere on a disk: the tables of its files, as they would be read. */
#ifndef TESTS_BENCH_SCALE_STORED_H
#define TESTS_BENCH_SCALE_STORED_H

#include "planned.h"
#include "reader/checkpoint.h"
#include "save/plan.h"

typedef struct stored {
    unsigned char *packed; /* of layout global: user block, index, blocks, meta */
    uint64_t bytes;
    int shards; /* of layout sharded, each with a row of boxes as dcp_box_chunk cuts them; 0: none
                 */
    state_tensor *const *sorted;
    size_t n;
} stored;

/* Layout global, from what was planned for it. */
void stored_make(stored *s, const save_file *file);

/* As one rank opens it, once the tables have come; the caller closes it. *cost is what decoding and
 * joining them took, and what stays in memory. */
dcp_checkpoint *stored_open(const stored *s, dcp_comm *comm, planned_cost *cost);

#endif
