/* What --plan plans: a rank that need not exist. */
#pragma once

#include "fsdp/fsdp_plan.h"
#include "models/model.h"
#include <dcp/error.h>

typedef struct config config;

/* Of rank 0, which holds the most, of `ranks` on one host, or with is_on_gpu on a GPU each. The
 * caller destroys *layout, which *out refers to. */
int setup_planned(const config *c, const model *m, int ranks, int is_on_gpu, fsdp_plan *out,
                  fsdp_layout **layout, dcp_error *err);
