/* Values that follow from a configuration. */
#include "config/config.h"

#include <inttypes.h>
#include <stdlib.h>

#include "programs/fail.h"

const char config_no_offload[] =
    "fsdp.cpu_offload: on the CPU everything is in the host's memory "
    "already; to offload to a disk, set fsdp.offload_path to a folder on that disk";

void config_free(config *c) {
    if (!c) return;
    json_decref(c->tree);
    json_decref(c->model);
    free(c);
}

uint64_t config_micro_batches(const config *c) { return c->batch / c->micro; }

int config_check_world(const config *c, int world, dcp_error *err) {
    const uint64_t product = c->micro * c->accumulation * (uint64_t)world;
    if (c->accumulation == 0 || product == c->batch) return DCP_OK;
    return core_fail(
        err, DCP_ERR_ARG,
        "gradient_accumulation_steps: train_batch_size %" PRIu64 " is not micro-batch %" PRIu64
        " x accumulation %" PRIu64 " x %d %s = %" PRIu64
        "; set train_batch_size to that product, or leave gradient_accumulation_steps out",
        c->batch, c->micro, c->accumulation, world, world == 1 ? "rank" : "ranks", product);
}
