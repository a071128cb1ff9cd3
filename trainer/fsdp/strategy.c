/* Translates the keys of DeepSpeed and FSDP into one description. */
#include "fsdp/strategy.h"

#include <stdbool.h>

#include "config/config.h"
#include "programs/fail.h"

int fsdp_strategy_of(const config *c, int world, fsdp_strategy *out, dcp_error *err) {
    const int replicas = (int)c->replicas;
    if (c->stage == 0 && replicas != 1)
        return core_fail(err, DCP_ERR_ARG,
                         "fsdp.replicas: %d, but at zero_optimization.stage 0 every rank holds "
                         "all of the state; leave it out, or set a stage from 1 to 3",
                         replicas);
    if (world % replicas != 0)
        return core_fail(
            err, DCP_ERR_ARG,
            "fsdp.replicas: %d does not divide the number of ranks, %d; choose a number that does",
            replicas, world);
    const bool keeps = c->stage < 3 || !c->reshard;
    *out = (fsdp_strategy){.replicas = c->stage == 0 ? world : replicas,
                           .keep_params = keeps,
                           .in_place = keeps && !c->offloads,
                           .local_sums = c->stage < 2 || c->accumulate_local,
                           .overlap = c->overlap,
                           .ring = c->ring,
                           .bf16 = c->bf16,
                           .prefetch = c->prefetch,
                           .min_params = c->wrap_by_size ? c->min_num_params : 0};
    return DCP_OK;
}
