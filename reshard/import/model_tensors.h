/* The tensors of a Hugging Face folder: their names in the checkpoint, whether they are the
 * model's, and the optimizer's state. */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include <dcp/safetensors.h>

#include "common/tensor_names.h"

/* The tensors of a folder, and what they are called in the checkpoint: without what wrappers of
 * PyTorch put into names. */

typedef struct import_tensor {
    dcp_tensor tensor;  /* path: the name in the checkpoint, owned; of a moment SLOT.NAME */
    const char *stored; /* in the file; the reader's */
} import_tensor;

typedef struct import_tensors {
    import_tensor *list; /* ascending by the name in the checkpoint */
    size_t n;
} import_tensors;

typedef struct import_model {
    dcp_st_reader *reader, *moments; /* NULL: none are imported */
    tensor_names names;
    import_tensors tensors, moment_tensors;
} import_model;

/* Of the readers, which are open. An exit status, having said what failed. */
int import_model_name(import_model *model);
void import_model_close(import_model *model);

/* Whether the tensors of a folder are those of its config.json. */

/* Compares the tensors with those that config.json asks for, where dcp-train takes that
 * configuration (dropout aside). Lists those that are missing, surplus or of another shape, those
 * alike in all layers once, and those that the index names and no file holds, but for a copy of
 * tied weights: a failure, or with `allow` a note. What dcp-train would refuse in config.json is a
 * note. Returns an exit status. */
int import_tensors_check(const char *folder, const json_t *config, const import_model *model,
                         int allow);

/* The optimizer's state of a folder, as dcp-export --with-optimizer writes it: tensors SLOT.NAME of
 * the parameter NAME, and of each its count of updates, step.NAME. */

/* The section of the checkpoint; the slot is a folder in it. */
#define IMPORT_MOMENTS "optimizer"

/* Opens it, and compares it with the model's tensors. An exit status, having said what failed. */
int import_moments_open(const char *folder, const dcp_st_reader *model, dcp_st_reader **out);
