/* The model of a checkpoint, whole, in the memory of this process. */
#pragma once

#include <jansson.h>

#include "models/model.h"
#include <dcp/checkpoint.h>

/* All of it is the struct's until the close. */
typedef struct sample_loaded {
    dcp_comm *comm; /* this process alone */
    dcp_checkpoint *ckpt;
    json_t *meta; /* what the trainer saved beside the tensors */
    model *m;
    float **params; /* of all units, one after the other, in `memory` */
    size_t *first;  /* [units] where each unit's begin */
    void *memory;
} sample_loaded;

/* `path`: a step's folder, of either layout, saved by any number of ranks. Computes in bf16 where
 * the run did. DCP_ERR_ARG: it holds no language model of the trainer's. DCP_ERR_MISMATCH: its
 * tensors are not those of its model. Other failures as dcp_load's. Closed again on failure. */
int sample_loaded_open(const char *path, sample_loaded *out, dcp_error *err);
void sample_loaded_close(sample_loaded *s);

/* What model_forward takes for the stage. */
const float *const *sample_loaded_params(const sample_loaded *s, size_t stage);
