/* Whether the tensors of a folder are those of its config.json. */
#pragma once

#include <jansson.h>

#include "import/model_tensors.h"

/* Compares the tensors with those that config.json asks for, where dcp-train takes that
 * configuration (dropout aside). Lists those that are missing, surplus or of another shape, those
 * alike in all layers once, and those that the index names and no file holds, but for a copy of
 * tied weights: a failure, or with `allow` a note. What dcp-train would refuse in config.json is a
 * note. Returns an exit status. */
int import_tensors_check(const char *folder, const json_t *config, const import_model *model,
                         int allow);
