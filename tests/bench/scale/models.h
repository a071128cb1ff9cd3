/* The training states that the figures of docs/scale.md are about: a decoder's parameters in fp32
 * and the optimizer's two moments, cut on dimension 0 as FSDP2 does it. */
#ifndef TESTS_BENCH_SCALE_MODELS_H
#define TESTS_BENCH_SCALE_MODELS_H

#include <stdint.h>

#include "dcp/dcp.h"

typedef struct model {
    const char *name;
    uint64_t hidden, wide, kv, vocab; /* wide: of the MLP; kv: of keys and values */
    int layers;
} model;

enum { MODEL_IN_LAYER = 9, MODEL_BESIDE = 3 };

/* By its name; NULL: there is none. */
const model *model_find(const char *name);

/* The state of a rank whose shard is number `shard` of `shards`. `memory` gives a box's memory. */
dcp_state *model_state(const model *m, int shard, int shards, void *(*memory)(uint64_t bytes));
/* Bytes of all tensors. */
uint64_t model_bytes(const model *m);

#endif
