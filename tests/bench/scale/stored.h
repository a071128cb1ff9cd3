/* A checkpoint of layout global that is nowhere on a disk: its tables, as they would be read. */
#ifndef TESTS_BENCH_SCALE_STORED_H
#define TESTS_BENCH_SCALE_STORED_H

#include "load/checkpoint.h"
#include "save/save.h"

typedef struct stored {
    unsigned char *packed; /* user block, index, blocks, meta */
    uint64_t bytes;
} stored;

void stored_make(stored *s, const save_file *file);
/* As one rank opens it, once the tables have come; the caller closes it. */
dcp_checkpoint *stored_open(const stored *s, dcp_comm *comm);

#endif
