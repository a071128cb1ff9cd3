#include "setup/planned.h"

#include "config/config.h"
#include "fsdp/shard_layout.h"
#include "optim/optim.h"

/* Ranks share what they gather in the host's memory alone. */
int setup_planned(const config *c, const model *m, int ranks, int is_on_gpu, fsdp_plan *out,
                  fsdp_layout **layout, dcp_error *err) {
    *layout = NULL;
    *out = (fsdp_plan){.micro_batches = config_micro_batches(c),
                       .slot_bytes = optim_element_bytes(optim_type_find(c->optimizer)),
                       .offloads = c->offloads,
                       .is_on_host = c->offloads && (is_on_gpu || !c->offload_path),
                       .is_shared = c->shares_memory && !is_on_gpu};
    if (out->is_on_host) out->is_shared = 0; /* they are on a device, then */
    int status = fsdp_strategy_of(c, ranks, &out->strategy, err);
    if (status == DCP_OK)
        status = fsdp_layout_of_model(m, c->frozen, &out->strategy, 0, ranks, layout, err);
    out->layout = *layout;
    return status;
}
