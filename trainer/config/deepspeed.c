#include "config/deepspeed.h"

#include <stddef.h>
#include <string.h>

#define BY_UNIT "drop it: a unit is gathered and reduced at once; fsdp.wrap_policy says what one is"
#define OFFLOAD "use fsdp.cpu_offload"
#define BF16 "use bf16.enabled; bf16 needs no loss scaling"
#define EXACT "drop it: gradients are added in fp32"
#define ANY_WORLD "drop it: any number of ranks loads any checkpoint"
#define METRICS "use metrics, a JSON line a step; dcp-train --plot draws it"
#define NOT_HERE "drop it: nothing like it is built"

static const struct {
    const char *path, *instead;
} their_keys[] = {
    {"fp16", BF16},
    {"amp", BF16},
    {"bfloat16", "use bf16"},
    {"bf16.immediate_grad_update", EXACT},
    {"bf16.check_grad_overflow", "drop it: a loss or norm that is no number ends the run"},
    {"bf16.bf16_master_weights_and_grads", "drop it: master weights and gradients are fp32"},
    {"bf16.bf16_optimizer_states", "drop it: moments are fp32"},
    {"data_types", EXACT},
    {"communication_data_type", EXACT},
    {"seq_parallel_communication_data_type", EXACT},
    {"fp32_allreduce", EXACT},
    {"prescale_gradients", EXACT},
    {"gradient_predivide_factor", EXACT},
    {"sparse_gradients", "drop it: all gradients are dense"},
    {"disable_allgather", BY_UNIT},
    {"zero_allow_untested_optimizer", "drop it: AdamW and SGD are the optimizers"},
    {"zero_force_ds_cpu_optimizer", "drop it: AdamW and SGD are the optimizers"},
    {"zero_optimization.offload_optimizer", OFFLOAD},
    {"zero_optimization.offload_param", OFFLOAD},
    {"zero_optimization.cpu_offload", OFFLOAD},
    {"zero_optimization.cpu_offload_param", OFFLOAD},
    {"zero_optimization.cpu_offload_use_pin_memory", OFFLOAD},
    {"zero_optimization.stage3_prefetch_bucket_size", "use fsdp.prefetch, in units"},
    {"zero_optimization.prefetch_bucket_size", "use fsdp.prefetch, in units"},
    {"zero_optimization.stage3_max_live_parameters", "use fsdp.prefetch, in units"},
    {"zero_optimization.max_live_parameters", "use fsdp.prefetch, in units"},
    {"zero_optimization.stage3_max_reuse_distance", "use fsdp.reshard_after_forward"},
    {"zero_optimization.max_reuse_distance", "use fsdp.reshard_after_forward"},
    {"zero_optimization.stage3_param_persistence_threshold",
     "drop it: the root unit stays gathered, blocks do not"},
    {"zero_optimization.param_persistence_threshold",
     "drop it: the root unit stays gathered, blocks do not"},
    {"zero_optimization.stage3_model_persistence_threshold",
     "drop it: the root unit stays gathered, blocks do not"},
    {"zero_optimization.model_persistence_threshold",
     "drop it: the root unit stays gathered, blocks do not"},
    {"zero_optimization.stage3_gather_16bit_weights_on_model_save",
     "drop it: a checkpoint holds whole tensors; dcp-export --dtype bf16 rounds them"},
    {"zero_optimization.stage3_gather_fp16_weights_on_model_save",
     "drop it: a checkpoint holds whole tensors; dcp-export --dtype f16 rounds them"},
    {"zero_optimization.gather_16bit_weights_on_model_save",
     "drop it: a checkpoint holds whole tensors; dcp-export --dtype bf16 rounds them"},
    {"zero_optimization.allgather_bucket_size", BY_UNIT},
    {"zero_optimization.reduce_bucket_size", BY_UNIT},
    {"zero_optimization.allgather_partitions", BY_UNIT},
    {"zero_optimization.reduce_scatter", BY_UNIT},
    {"zero_optimization.contiguous_gradients", BY_UNIT},
    {"zero_optimization.round_robin_gradients", BY_UNIT},
    {"zero_optimization.use_multi_rank_bucket_allreduce", BY_UNIT},
    {"zero_optimization.sub_group_size", BY_UNIT},
    {"zero_optimization.zero_hpz_partition_size", "use fsdp.replicas"},
    {"zero_optimization.mics_shard_size", "use fsdp.replicas: ranks over the shard's size"},
    {"zero_optimization.mics_hierarchical_params_gather", "use fsdp.replicas"},
    {"zero_optimization.zero_quantized_weights", EXACT},
    {"zero_optimization.zero_quantized_gradients", EXACT},
    {"zero_optimization.zero_quantized_nontrainable_weights", EXACT},
    {"zero_optimization.elastic_checkpoint", ANY_WORLD},
    {"zero_optimization.load_from_fp32_weights", ANY_WORLD},
    {"zero_optimization.legacy_stage1", "drop it"},
    {"zero_optimization.ignore_unused_parameters", "drop it: frozen names what is not trained"},
    {"zero_optimization.memory_efficient_linear", "use fsdp.activation_checkpointing"},
    {"activation_checkpointing", "use fsdp.activation_checkpointing"},
    {"optimizer.legacy_fusion", "drop it"},
    {"optimizer.params.adam_w_mode", "drop it: AdamW decouples the decay"},
    {"optimizer.params.torch_adam", "drop it: AdamW is PyTorch's"},
    {"optimizer.params.bias_correction", "drop it: AdamW corrects biases"},
    {"optimizer.params.amsgrad", NOT_HERE},
    {"optimizer.params.freeze_step", NOT_HERE},
    {"optimizer.params.max_grad_norm", "use gradient_clipping"},
    {"optimizer.params.fused", "drop it: AdamW is one kernel a parameter"},
    {"scheduler.params.warmup_num_steps", "use scheduler.params.warmup_steps"},
    {"scheduler.params.total_num_steps", "use max_steps"},
    {"scheduler.params.warmup_max_lr", "use optimizer.params.lr"},
    {"scheduler.params.warmup_min_lr", "drop it: a warm-up begins near 0"},
    {"scheduler.params.warmup_min_ratio", "drop it: a warm-up begins near 0"},
    {"scheduler.params.warmup_type", "drop it: a warm-up is linear"},
    {"scheduler.params.cos_min_ratio", "use scheduler.params.min_lr_ratio"},
    {"scheduler.params.last_batch_iteration", "drop it: a checkpoint holds the step"},
    {"steps_per_print", "drop it: each step has its line"},
    {"wall_clock_breakdown", "drop it: a table comes at the end; dcp-train --trace has each piece"},
    {"memory_breakdown", "use dcp-train --plan"},
    {"dump_state", "use dcp-train --print-config"},
    {"flops_profiler", "drop it: metrics have mfu; dcp-train --trace has each piece"},
    {"comms_logger", "use dcp-train --trace"},
    {"tensorboard", METRICS},
    {"wandb", METRICS},
    {"comet", METRICS},
    {"csv_monitor", METRICS},
    {"monitor_config", METRICS},
    {"elasticity", "use dcp-run --restart-ranks; " ANY_WORLD},
    {"checkpoint.tag_validation", ANY_WORLD},
    {"checkpoint.load_universal", ANY_WORLD},
    {"checkpoint.use_node_local_storage", "use checkpoint.stores"},
    {"checkpoint.parallel_write", "drop it: all ranks write"},
    {"load_universal_checkpoint", ANY_WORLD},
    {"use_node_local_storage", "use checkpoint.stores"},
    {"dataloader_drop_last", "drop it: batches go on over the end of an epoch"},
    {"gradient_accumulation_dtype", EXACT},
    {"aio", "drop it: saves write beside the computation by themselves"},
    {"pipeline", NOT_HERE},
    {"tensor_parallel", NOT_HERE},
    {"sequence_parallel_size", NOT_HERE},
    {"autotuning", NOT_HERE},
    {"compression_training", NOT_HERE},
    {"curriculum_learning", NOT_HERE},
    {"data_efficiency", NOT_HERE},
    {"eigenvalue", NOT_HERE},
    {"hybrid_engine", NOT_HERE},
    {"graph_harvesting", NOT_HERE},
    {"nebula", NOT_HERE},
    {"weight_quantization", NOT_HERE},
    {"zero_optimization.zenflow", NOT_HERE},
    {"zero_optimization.leaf_module", NOT_HERE},
    {"zero_optimization.zeropp_loco_param", NOT_HERE},
    {"zero_optimization.stage3_module_granularity_threshold", NOT_HERE},
    {"zero_optimization.module_granularity_threshold", NOT_HERE},
    {"zero_optimization.pipeline_loading_checkpoint", ANY_WORLD},
    {"zero_optimization.log_trace_cache_warnings", NOT_HERE},
    {"zero_optimization.enable_sanity_checks", NOT_HERE},
    {"zero_optimization.override_module_apply", NOT_HERE},
    {"zero_optimization.stage3_use_all_reduce_for_fetch_params", NOT_HERE},
    {"zero_optimization.use_all_reduce_for_fetch_params", NOT_HERE},
    {"zero_optimization.stage3_allgather_sequential", NOT_HERE},
    {"vocabulary_size", "drop it: the model's config.json has vocab_size"},
    {"timers", "drop it: a table comes at the end"},
    {"torch_autocast", BF16},
    {"compile", NOT_HERE},
    {"progressive_layer_drop", NOT_HERE},
    {"quantize_training", NOT_HERE},
    {"sparse_attention", NOT_HERE},
};

static int is_or_below(const char *path, const char *key) {
    const size_t n = strlen(key);
    return strncmp(path, key, n) == 0 && (path[n] == '\0' || path[n] == '.');
}

const char *config_deepspeed_instead(const char *path) {
    for (size_t i = 0; i < sizeof their_keys / sizeof *their_keys; i++)
        if (is_or_below(path, their_keys[i].path)) return their_keys[i].instead;
    return NULL;
}

const char *config_deepspeed_name(const char *path, const char *value) {
    static const struct {
        const char *path, *theirs, *ours;
    } names[] = {
        {"scheduler.type", "WarmupLR", "constant"},
        {"scheduler.type", "WarmupDecayLR", "linear with min_lr_ratio 0"},
        {"scheduler.type", "WarmupCosineLR", "cosine with min_lr_ratio 0.0001"},
        {"optimizer.type", "Adam", "AdamW"},
        {"optimizer.type", "FusedAdam", "AdamW"},
        {"optimizer.type", "DeepSpeedCPUAdam", "AdamW"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names && value; i++)
        if (strcmp(path, names[i].path) == 0 && strcmp(value, names[i].theirs) == 0)
            return names[i].ours;
    return NULL;
}
