/* The tensors of a Hugging Face folder: their names in the checkpoint, their comparison with
 * config.json, and the optimizer's state. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include <dcp/safetensors.h>

#include "common/tensor_names.h"

/* The tensors of a folder, and their names in the checkpoint: without the parts that wrappers of
 * PyTorch add to names. */

typedef struct import_tensor {
    dcp_tensor tensor;  /* tensor.path: the name in the checkpoint, owned; SLOT.NAME for a moment */
    const char *stored; /* the name in the file; the reader owns it */
} import_tensor;

typedef struct import_tensors {
    import_tensor *list; /* in ascending order of names in the checkpoint */
    size_t n;
} import_tensors;

typedef struct import_model {
    dcp_st_reader *reader, *moments; /* moments: NULL if none are imported */
    tensor_names names;
    import_tensors tensors, moment_tensors;
} import_model;

/* Fills in the tensors of the open readers. Returns an exit status; reports failures itself. */
int import_model_name(import_model *model);
void import_model_close(import_model *model);

/* The comparison of a folder's tensors with its config.json. */

/* Compares the tensors with the tensors that config.json requires, if dcp-train accepts that
 * configuration (ignoring dropout). Reports tensors that are missing, surplus or of another shape;
 * a difference that all layers have is reported once. Also reports tensors that the index names but
 * no file contains, except for a copy of tied weights. Any of these is a failure, unless `allow` is
 * set. A value in config.json that dcp-train would refuse is reported, but is not a failure.
 * Returns an exit status. */
int import_tensors_check(const char *folder, const json_t *config, const import_model *model,
                         bool allow);

/* The optimizer's state of a folder, as dcp-export --with-optimizer writes it: tensors SLOT.NAME
 * for each parameter NAME, and its count of updates, step.NAME. */

/* The section of the checkpoint that holds this state; it has a folder for each slot. */
#define IMPORT_MOMENTS "optimizer"

/* Opens the optimizer's state, and compares it with the model's tensors. Returns an exit status;
 * reports failures itself. */
int import_moments_open(const char *folder, const dcp_st_reader *model, dcp_st_reader **out);
