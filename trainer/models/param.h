/* One parameter of a model. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <dcp/tensor.h>

typedef enum model_init { MODEL_INIT_NORMAL, MODEL_INIT_ONES, MODEL_INIT_ZEROS } model_init;

typedef struct model_param {
    char name[128]; /* Hugging Face's name: "model.layers.0.mlp.up_proj.weight" */
    uint32_t ndim;
    uint64_t shape[DCP_MAX_DIMS];
    size_t base;     /* the offset in `name` of its name in the base model: "layers.0.mlp..." */
    model_init init; /* the initial values of a random start */
    double std;      /* for MODEL_INIT_NORMAL */
    bool frozen;     /* false; code that trains the model may set it in a copy */
    bool fresh; /* a classifier: files of weights may lack it; it is then initialized randomly */
    bool table; /* used only to look up single rows */
    bool tied;  /* files may hold it a second time, as lm_head.weight */
} model_param;

static inline uint64_t model_param_elems(const model_param *param) {
    uint64_t elems = 1;
    for (uint32_t d = 0; d < param->ndim; d++) elems *= param->shape[d];
    return elems;
}
