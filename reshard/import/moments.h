/* The optimizer's state of a folder, as dcp-export --with-optimizer writes it: tensors SLOT.NAME of
 * the parameter NAME, and of each its count of updates, step.NAME. */
#pragma once

#include <dcp/safetensors.h>

/* The section of the checkpoint; the slot is a folder in it. */
#define IMPORT_MOMENTS "optimizer"

/* Opens it, and compares it with the model's tensors. An exit status, having said what failed. */
int import_moments_open(const char *folder, const dcp_st_reader *model, dcp_st_reader **out);
