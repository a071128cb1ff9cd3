/* A tensor's checksum, from those of its datasets. */
#pragma once

#include "step/checkpoint.h"

/* 1 where each dataset is one run of the tensor's bytes: cut on dimension 0, for example. Only then
 * do the datasets' checksums give the tensor's. */
int step_tensor_is_runs(const dcp_checkpoint *ckpt, const step_tensor *t);

/* The tensor's checksum, as the tables have it; its datasets are runs. */
uint64_t step_tensor_checksum(const dcp_checkpoint *ckpt, const step_tensor *t);

/* Both for datasets that are added one by one. */
typedef struct step_tensor_sum {
    const step_tensor *of;
    dcp_box whole;
    uint64_t raw, crc;
    int is_runs, is_one; /* one dataset is all of the tensor: crc is its own */
} step_tensor_sum;

void step_tensor_sum_begin(step_tensor_sum *sum, const step_tensor *t);
void step_tensor_sum_add(step_tensor_sum *sum, const dcp_box *held, uint64_t bytes, uint64_t crc);
/* The checksum, where it is_runs. */
uint64_t step_tensor_sum_end(const step_tensor_sum *sum);
