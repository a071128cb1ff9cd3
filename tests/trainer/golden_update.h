#pragma once

#include <jansson.h>
#include <math.h>

#include "kernels/kernels.h"

/* One of the steps that golden.json of a family expects; norm: of all gradients. */
static inline kernels_update golden_update(const json_t *expected, size_t step, double norm) {
    const json_t *o = json_object_get(expected, "optimizer");
    const json_t *betas = json_object_get(o, "betas");
    const double clip = json_number_value(json_object_get(expected, "clip"));
    return (kernels_update){
        .rule = KERNELS_ADAMW,
        .lr = json_number_value(json_object_get(o, "lr")),
        .beta1 = json_number_value(json_array_get(betas, 0)),
        .beta2 = json_number_value(json_array_get(betas, 1)),
        .eps = json_number_value(json_object_get(o, "eps")),
        .weight_decay = json_number_value(json_object_get(o, "weight_decay")),
        .grad_scale = fmin(1.0, clip / (norm + 1e-6)),
        .step = step + 1,
    };
}
