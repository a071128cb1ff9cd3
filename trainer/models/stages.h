/* Finds the stages of a model by their numbers. If there is an inner model, its stages follow the
 * stages of the outer model. */
#pragma once

#include <stdbool.h>

#include "models/parts.h"

/* A stage: its kind and its position. */
typedef struct stage_place {
    const model *level; /* the model itself, or its inner model */
    const stage_kind *kind;
    size_t layer, unit;
    bool is_block;
} stage_place;

size_t model_stages_count(const model *m);
stage_place model_stages_at(const model *m, size_t stage);
