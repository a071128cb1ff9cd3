/* The tensors of a folder, and what they are called in the checkpoint: without what wrappers of
 * PyTorch put into names. */
#pragma once

#include <stddef.h>

#include <dcp/safetensors.h>

#include "common/tensor_names.h"

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
