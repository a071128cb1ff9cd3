/* A tensor's checksum, from those of its datasets. */
#pragma once

#include "step/checkpoint.h"

/* 1 where each dataset is one run of the tensor's bytes: cut on dimension 0, for example. Only then
 * do the datasets' checksums give the tensor's. */
int step_tensor_is_runs(const dcp_checkpoint *ckpt, const step_tensor *t);

/* The tensor's checksum, as the tables have it; its datasets are runs. */
uint64_t step_tensor_checksum(const dcp_checkpoint *ckpt, const step_tensor *t);
