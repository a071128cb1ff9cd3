/* From the effective tree, in which every key is there and right, to the struct. */
#include "config/fill.h"

#include <string.h>

#include "config/stores.h"
#include "config/tree.h"

static config_schedule schedule_of(const char *name) {
    if (strcmp(name, "linear") == 0) return SCHEDULE_LINEAR;
    if (strcmp(name, "cosine") == 0) return SCHEDULE_COSINE;
    return strcmp(name, "wsd") == 0 ? SCHEDULE_WSD : SCHEDULE_CONSTANT;
}

static void fill_training(config *c, const json_t *tree) {
    c->init = config_text(tree, "init");
    c->data_type = config_text(tree, "data.type");
    c->data_path = config_text(tree, "data.path");
    c->data_dtype = config_text(tree, "data.dtype"); /* null: by the vocabulary */
    c->eval_path = config_text(tree, "data.eval_path");
    c->eval_every = config_count(tree, "eval_every");
    c->sequence = config_count(tree, "data.sequence_length");
    c->seed = config_count(tree, "seed");
    c->max_steps = config_count(tree, "max_steps");
    c->batch = config_count(tree, "train_batch_size");
    c->micro = config_count(tree, "train_micro_batch_size_per_gpu");
    c->accumulation = config_count(tree, "gradient_accumulation_steps");
    c->frozen = config_at(tree, "frozen");
    c->device = config_text(tree, "device");
    c->tf32 = config_is_true(tree, "cuda.tf32");
    c->bf16 = config_is_true(tree, "bf16.enabled");
}

static void fill_sharding(config *c, const json_t *tree) {
    c->stage = (int)config_count(tree, "zero_optimization.stage");
    c->ring = config_is_true(tree, "zero_optimization.ring");
    c->overlap = config_is_true(tree, "zero_optimization.overlap_comm");
    c->reshard = config_is_true(tree, "fsdp.reshard_after_forward");
    c->accumulate_local = strcmp(config_text(tree, "fsdp.accumulate"), "local") == 0;
    c->replicas = (int)config_count(tree, "fsdp.replicas");
    c->wrap_by_size = strcmp(config_text(tree, "fsdp.wrap_policy"), "size") == 0;
    c->min_num_params = config_count(tree, "fsdp.min_num_params");
    c->prefetch = config_count(tree, "fsdp.prefetch");
    c->shares_memory = config_is_true(tree, "fsdp.shared_memory");
    c->checkpointing = config_is_true(tree, "fsdp.activation_checkpointing");
    c->offloads = config_is_true(tree, "fsdp.cpu_offload");
    c->offload_path = config_text(tree, "fsdp.offload_path");
}

static void fill_optimizer(config *c, const json_t *tree) {
    c->clipping = config_number(tree, "gradient_clipping");
    c->lr = config_number(tree, "optimizer.params.lr");
    c->optimizer = config_text(tree, "optimizer.type");
    c->optimizer_params = config_at(tree, "optimizer.params");
    c->schedule = schedule_of(config_text(tree, "scheduler.type"));
    c->warmup_steps = config_count(tree, "scheduler.params.warmup_steps");
    c->min_lr_ratio = config_number(tree, "scheduler.params.min_lr_ratio");
    c->decay_ratio = config_number(tree, "scheduler.params.decay_ratio");
}

static dcp_tier last_store(const config *c, const json_t *tree) {
    const int sharded = strcmp(config_text(tree, "checkpoint.layout"), "sharded") == 0;
    return (dcp_tier){.path = c->dir,
                      .every = config_count(tree, "checkpoint.every"),
                      .keep = (uint32_t)config_count(tree, "checkpoint.keep"),
                      .layout = sharded ? DCP_LAYOUT_SHARDED : DCP_LAYOUT_GLOBAL};
}

void config_fill_output(config *c, const json_t *tree) {
    c->dir = config_text(tree, "checkpoint.dir");
    c->resume = config_text(tree, "checkpoint.resume");
    c->n_stores = stores_fill(config_at(tree, "checkpoint.stores"), c->stores);
    c->stores[c->n_stores++] = last_store(c, tree);
    dcp_engine_parse(config_text(tree, "checkpoint.engine"), &c->engine);
    c->overwrite = config_is_true(tree, "checkpoint.overwrite");
    c->async = config_is_true(tree, "checkpoint.async");
    c->staging_bytes = config_count(tree, "checkpoint.staging_mb") << 20;
    c->skip_when_busy = strcmp(config_text(tree, "checkpoint.when_busy"), "skip") == 0;
    c->metrics = config_text(tree, "metrics");
}

void config_fill(config *c, const json_t *tree) {
    fill_training(c, tree);
    fill_sharding(c, tree);
    fill_optimizer(c, tree);
    config_fill_output(c, tree);
}
