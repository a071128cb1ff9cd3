#include "config/deepspeed.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "config/json_tree.h"
#include "config/schema.h"

typedef enum deepspeed_kind {
    NO_EFFECT, /* configures how DeepSpeed works, or what it prints */
    REFUSED,   /* `text`: the reason, and the remedy */
    RENAMED,   /* `text`: dcp-train's name of the key */
    OFFLOAD,   /* selects where parameters or moments are stored */
} deepspeed_kind;

/* A row applies to its key and to all keys below it; the first matching row counts. A star at the
 * end matches any text. */
typedef struct deepspeed_row {
    const char *path;
    deepspeed_kind kind;
    const char *text;
    const char *off; /* values that request nothing, as a JSON list; NULL: false, null, {} and an
                        object whose "enabled" is false. "auto" requests nothing in either case */
} deepspeed_row;

#define BF16 "set bf16.enabled=true, which needs no loss scaling, or leave it out for fp32"
#define NOT_HERE "this is not implemented: drop it"
#define ONE_BIT "compression of 1-bit optimizers is not implemented: drop it"
#define LAMB "a key of LAMB, which is not implemented: drop it"
#define WARM_UP "a warm-up begins with a learning rate of 0 here: set this key to 0"
#define CYCLES "schedules of that kind are not implemented: drop it, and see scheduler.type"

static const deepspeed_row rows[] = {
    {"bfloat16.enabled", RENAMED, "bf16.enabled", NULL},
    {"bfloat16", NO_EFFECT, NULL, NULL},
    {"bf16.loss_scale", NO_EFFECT, NULL, NULL},
    {"bf16.immediate_grad_update", NO_EFFECT, NULL, NULL},
    {"bf16.check_grad_overflow", NO_EFFECT, NULL, NULL},
    {"bf16.bf16_*", NO_EFFECT, NULL, NULL}, /* what DeepSpeed stores in bf16 is fp32 here */
    {"fp16.enabled", REFUSED,
     "fp16 is not implemented: set fp16.enabled=false for fp32, and also bf16.enabled=true for "
     "bf16",
     NULL},
    {"fp16", NO_EFFECT, NULL, NULL},
    {"amp.enabled", REFUSED, "amp is not implemented: set amp.enabled=false; " BF16, NULL},
    {"amp", NO_EFFECT, NULL, NULL},
    {"torch_autocast.enabled", REFUSED,
     "autocast exists only in PyTorch: set torch_autocast.enabled=false; " BF16, NULL},
    {"torch_autocast", NO_EFFECT, NULL, NULL},
    {"data_types", NO_EFFECT, NULL, NULL}, /* gradients are added and sent in fp32 */
    {"communication_data_type", NO_EFFECT, NULL, NULL},
    {"seq_parallel_communication_data_type", NO_EFFECT, NULL, NULL},
    {"seq_parallel_comm_data_type", NO_EFFECT, NULL, NULL},
    {"gradient_accumulation_dtype", NO_EFFECT, NULL, NULL},
    {"fp32_allreduce", NO_EFFECT, NULL, NULL},
    {"prescale_gradients", NO_EFFECT, NULL, NULL},
    {"gradient_predivide_factor", NO_EFFECT, NULL, NULL},
    {"gradient_allreduce_op", REFUSED, "gradients are averaged here: drop it", "[\"mean\"]"},
    {"sparse_gradients", NO_EFFECT, NULL, NULL},
    {"disable_allgather", NO_EFFECT, NULL, NULL},
    {"managed_gradient_accumulation", NO_EFFECT, NULL, NULL},
    {"zero_allow_untested_optimizer", NO_EFFECT, NULL, NULL},
    {"zero_force_ds_cpu_optimizer", NO_EFFECT, NULL, NULL},

    {"zero_optimization.offload_optimizer", OFFLOAD, NULL, NULL},
    {"zero_optimization.offload_param", OFFLOAD, NULL, NULL},
    {"zero_optimization.cpu_offload", OFFLOAD, NULL, NULL},
    {"zero_optimization.cpu_offload_param", OFFLOAD, NULL, NULL},
    {"zero_optimization.cpu_offload_use_pin_memory", NO_EFFECT, NULL, NULL},
    {"zero_optimization.mics_shard_size", REFUSED,
     "set fsdp.replicas to the number of ranks divided by this size, and drop this key", "[-1]"},
    {"zero_optimization.mics_hierarchical_params_gather", NO_EFFECT, NULL, NULL},
    {"zero_optimization.zenflow", REFUSED,
     "updates that lag behind the gradients are not implemented: drop it", NULL},
    /* these determine how much is gathered or reduced at once; here, that amount is one unit, see
     * fsdp.wrap_policy and fsdp.prefetch */
    {"zero_optimization.allgather_*", NO_EFFECT, NULL, NULL},
    {"zero_optimization.reduce_*", NO_EFFECT, NULL, NULL},
    {"zero_optimization.stage3_*", NO_EFFECT, NULL, NULL},
    {"zero_optimization.prefetch_bucket_size", NO_EFFECT, NULL, NULL},
    {"zero_optimization.param_persistence_threshold", NO_EFFECT, NULL, NULL},
    {"zero_optimization.model_persistence_threshold", NO_EFFECT, NULL, NULL},
    {"zero_optimization.max_live_parameters", NO_EFFECT, NULL, NULL},
    {"zero_optimization.max_reuse_distance", NO_EFFECT, NULL, NULL},
    {"zero_optimization.sub_group_size", NO_EFFECT, NULL, NULL},
    {"zero_optimization.contiguous_gradients", NO_EFFECT, NULL, NULL},
    {"zero_optimization.round_robin_gradients", NO_EFFECT, NULL, NULL},
    {"zero_optimization.use_multi_rank_bucket_allreduce", NO_EFFECT, NULL, NULL},
    {"zero_optimization.use_all_reduce_for_fetch_params", NO_EFFECT, NULL, NULL},
    {"zero_optimization.module_granularity_threshold", NO_EFFECT, NULL, NULL},
    {"zero_optimization.partition_stream_chunk_size", NO_EFFECT, NULL, NULL},
    {"zero_optimization.parameter_alignment", NO_EFFECT, NULL, NULL},
    {"zero_optimization.compute_grad_norm", NO_EFFECT, NULL, NULL},
    {"zero_optimization.gather_16bit_weights_on_model_save", NO_EFFECT, NULL, NULL},
    {"zero_optimization.zero_hpz_partition_size", NO_EFFECT, NULL, NULL},
    {"zero_optimization.zero_quantized_*", NO_EFFECT, NULL, NULL}, /* messages are exact here */
    {"zero_optimization.zeropp_loco_param", NO_EFFECT, NULL, NULL},
    {"zero_optimization.elastic_checkpoint", NO_EFFECT, NULL, NULL},
    {"zero_optimization.load_from_fp32_weights", NO_EFFECT, NULL, NULL},
    {"zero_optimization.pipeline_loading_checkpoint", NO_EFFECT, NULL, NULL},
    {"zero_optimization.legacy_stage1", NO_EFFECT, NULL, NULL},
    {"zero_optimization.ignore_unused_parameters", NO_EFFECT, NULL, NULL},
    {"zero_optimization.memory_efficient_linear", NO_EFFECT, NULL, NULL},
    {"zero_optimization.override_module_apply", NO_EFFECT, NULL, NULL},
    {"zero_optimization.log_trace_cache_warnings", NO_EFFECT, NULL, NULL},
    {"zero_optimization.enable_sanity_checks", NO_EFFECT, NULL, NULL},
    {"zero_optimization.leaf_module", NO_EFFECT, NULL, NULL},
    {"zero_optimization.save_muon_momentum_buffer_in_memory", NO_EFFECT, NULL, NULL},

    {"optimizer.legacy_fusion", NO_EFFECT, NULL, NULL},
    {"optimizer.params.torch_adam", NO_EFFECT, NULL, NULL},
    {"optimizer.params.fused", NO_EFFECT, NULL, NULL},
    {"optimizer.params.foreach", NO_EFFECT, NULL, NULL},
    {"optimizer.params.set_grad_none", NO_EFFECT, NULL, NULL},
    {"optimizer.params.adam_w_mode", REFUSED,
     "AdamW decouples the decay; Adam with decay in the gradient is not implemented: drop it",
     "[true]"},
    {"optimizer.params.bias_correction", REFUSED, "AdamW corrects biases here: drop it", "[true]"},
    {"optimizer.params.amsgrad", REFUSED, NOT_HERE, NULL},
    {"optimizer.params.max_grad_norm", REFUSED, "set gradient_clipping, and drop it", "[null, 0]"},
    {"optimizer.params.freeze_step", REFUSED, ONE_BIT, "[]"},
    {"optimizer.params.cuda_aware", NO_EFFECT, NULL, NULL},
    {"optimizer.params.comm_backend_name", NO_EFFECT, NULL, NULL},
    {"optimizer.params.var_freeze_step", REFUSED, ONE_BIT, "[]"},
    {"optimizer.params.var_update_scaler", REFUSED, ONE_BIT, "[]"},
    {"optimizer.params.local_step_*", REFUSED, ONE_BIT, "[]"},
    {"optimizer.params.coeff_beta", REFUSED, LAMB, "[]"},
    {"optimizer.params.max_coeff", REFUSED, LAMB, "[]"},
    {"optimizer.params.min_coeff", REFUSED, LAMB, "[]"},
    {"optimizer.params.factor_*", REFUSED, LAMB, "[]"},

    {"scheduler.params.warmup_num_steps", RENAMED, "scheduler.params.warmup_steps", NULL},
    {"scheduler.params.total_num_steps", RENAMED, "max_steps", NULL},
    {"scheduler.params.warmup_max_lr", RENAMED, "optimizer.params.lr", NULL},
    {"scheduler.params.cos_min_ratio", RENAMED, "scheduler.params.min_lr_ratio", NULL},
    {"scheduler.params.warmup_min_lr", REFUSED, WARM_UP, "[0]"},
    {"scheduler.params.warmup_min_ratio", REFUSED, WARM_UP, "[0]"},
    {"scheduler.params.last_batch_iteration", NO_EFFECT, NULL, NULL},
    {"scheduler.params.cycle_*", REFUSED, CYCLES, "[]"},
    {"scheduler.params.decay_lr_rate", REFUSED, CYCLES, "[]"},
    {"scheduler.params.decay_mom_rate", REFUSED, CYCLES, "[]"},
    {"scheduler.params.decay_step_size", REFUSED, CYCLES, "[]"},
    {"scheduler.params.lr_range_test_*", REFUSED, CYCLES, "[]"},

    {"steps_per_print", NO_EFFECT, NULL, NULL},
    {"wall_clock_breakdown", NO_EFFECT, NULL, NULL},
    {"memory_breakdown", NO_EFFECT, NULL, NULL},
    {"dump_state", NO_EFFECT, NULL, NULL},
    {"timers", NO_EFFECT, NULL, NULL},
    {"flops_profiler", NO_EFFECT, NULL, NULL},
    {"comms_logger", NO_EFFECT, NULL, NULL},
    {"comms_config", NO_EFFECT, NULL, NULL},
    {"tensorboard", NO_EFFECT, NULL, NULL}, /* the metrics file has a JSON line per step */
    {"wandb", NO_EFFECT, NULL, NULL},
    {"comet", NO_EFFECT, NULL, NULL},
    {"csv_monitor", NO_EFFECT, NULL, NULL},
    {"monitor_config", NO_EFFECT, NULL, NULL},
    {"activation_checkpointing", NO_EFFECT, NULL, NULL}, /* these keys configure how activations are
                                                            checkpointed, not whether they are */
    {"checkpoint.tag_validation", NO_EFFECT, NULL, NULL},
    {"checkpoint.load_universal", NO_EFFECT, NULL, NULL},
    {"checkpoint.use_node_local_storage", NO_EFFECT, NULL, NULL},
    {"checkpoint.parallel_write", NO_EFFECT, NULL, NULL},
    {"checkpoint.writer", NO_EFFECT, NULL, NULL},
    {"load_universal_checkpoint", NO_EFFECT, NULL, NULL},
    {"use_node_local_storage", NO_EFFECT, NULL, NULL},
    {"nebula", NO_EFFECT, NULL, NULL},
    {"aio", NO_EFFECT, NULL, NULL},
    {"compile", NO_EFFECT, NULL, NULL},
    {"graph_harvesting", NO_EFFECT, NULL, NULL},
    {"dataloader_drop_last", NO_EFFECT, NULL, NULL}, /* no samples are dropped: a batch may continue
                                                        in the next epoch */
    {"use_data_before_expert_parallelism", NO_EFFECT, NULL, NULL},
    {"vocabulary_size", NO_EFFECT, NULL, NULL}, /* from the model's config.json */

    {"elasticity", REFUSED,
     "a batch is the same on any number of ranks here: drop it; dcp-run changes the number of "
     "ranks",
     NULL},
    {"pipeline", REFUSED, NOT_HERE, NULL},
    {"tensor_parallel.autotp_size", REFUSED, "tensor parallelism is not implemented: drop it",
     "[0, 1]"},
    {"tensor_parallel", NO_EFFECT, NULL, NULL},
    {"sequence_parallel_size", REFUSED, "sequence parallelism is not implemented: drop it", "[1]"},
    {"expert_parallel", REFUSED, NOT_HERE, NULL},
    {"autotuning", REFUSED, NOT_HERE, NULL},
    {"compression_training", REFUSED, NOT_HERE, NULL},
    {"curriculum_learning", REFUSED, NOT_HERE, NULL},
    {"data_efficiency", REFUSED, NOT_HERE, NULL},
    {"eigenvalue", REFUSED, NOT_HERE, NULL},
    {"hybrid_engine", REFUSED, NOT_HERE, NULL},
    {"progressive_layer_drop", REFUSED, NOT_HERE, NULL},
    {"quantize_training", REFUSED, NOT_HERE, NULL},
    {"weight_quantization", REFUSED, NOT_HERE, NULL},
    {"sparse_attention", REFUSED, "attention is dense here: drop it", NULL},
};

/* DeepSpeed's values of scheduler.type and optimizer.type, compared without regard to case. If the
 * schedule is DeepSpeed's, keys of the schedule that the file omits get DeepSpeed's defaults. */
static const struct {
    const char *path, *theirs, *ours, *as;
    double min_lr_ratio; /* negative: none */
    bool is_schedule;
} types[] = {
    {"scheduler.type", "WarmupLR", "constant", "constant", -1, true},
    {"scheduler.type", "WarmupDecayLR", "linear", "linear", 0, true},
    {"scheduler.type", "WarmupCosineLR", "cosine", "cosine", 0.0001, true},
    {"optimizer.type", "Adam", "AdamW", "AdamW, as in DeepSpeed unless adam_w_mode is false", -1,
     false},
    {"optimizer.type", "FusedAdam", "AdamW", "AdamW", -1, false},
    {"optimizer.type", "DeepSpeedCPUAdam", "AdamW", "AdamW", -1, false},
    {"optimizer.type", "AdamW", "AdamW", NULL, -1, false},
    {"optimizer.type", "SGD", "SGD", NULL, -1, false},
};

/* dcp-train's keys, and groups of keys, that also exist in DeepSpeed. Their value "auto" selects
 * the default. */
static const char *const shared[] = {"train_batch_size",
                                     "train_micro_batch_size_per_gpu",
                                     "gradient_accumulation_steps",
                                     "gradient_clipping",
                                     "optimizer.params",
                                     "scheduler.params",
                                     "bf16.enabled",
                                     "zero_optimization"};

/* DeepSpeed's defaults that differ from dcp-train's. */
static const struct {
    const char *path, *theirs;
} defaults[] = {
    {"gradient_clipping", "0"},
    {"optimizer.params.betas", "[0.9, 0.999]"},
    {"optimizer.params.weight_decay", "0"},
};

#define BATCH "train_batch_size"
#define MICRO "train_micro_batch_size_per_gpu"
#define ACCUMULATION "gradient_accumulation_steps"
#define WARMUP_TYPE "scheduler.params.warmup_type"

enum { WARM_UP_STEPS = 1000, PATH_BYTES = 512 }; /* WARM_UP_STEPS: DeepSpeed's default */

typedef struct translation {
    json_t *tree;
    const json_t *from_line;
    json_t *meant; /* may be NULL */
    int world;     /* number of ranks */
    config_findings *f;
    const char *offload; /* the key that requested offloading; NULL if none */
    json_t *folder;      /* the folder of the offload files; NULL unless offloading to a disk was
                            requested */
} translation;

static bool is_or_below(const char *path, const char *key) {
    const size_t n = strlen(key);
    if (n && key[n - 1] == '*') return strncmp(path, key, n - 1) == 0;
    return strncmp(path, key, n) == 0 && (path[n] == '\0' || path[n] == '.');
}

static const deepspeed_row *find_their_row(const char *path) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (is_or_below(path, rows[i].path)) return &rows[i];
    return NULL;
}

/* The row of "<path>.enabled"; NULL if there is none. */
static const deepspeed_row *find_enabled_row(const char *path) {
    const size_t n = strlen(path);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strncmp(rows[i].path, path, n) == 0 && strcmp(rows[i].path + n, ".enabled") == 0)
            return &rows[i];
    return NULL;
}

/* Returns true if rows exist below the path. */
static bool is_their_group(const char *path) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].path, path) != 0 && is_or_below(rows[i].path, path)) return true;
    return false;
}

/* Returns true if the value can be a number of samples or steps. */
static bool is_count(const json_t *value) {
    const double number = json_number_value(value);
    return json_is_number(value) && number >= 1 && number <= INT32_MAX;
}

static bool is_auto(const json_t *value) {
    const char *text = json_string_value(value);
    return text && strcmp(text, "auto") == 0;
}

static bool same_value(const json_t *a, const json_t *b) {
    if (json_is_number(a) && json_is_number(b)) return json_number_value(a) == json_number_value(b);
    return json_equal(a, b);
}

/* Returns true if the value requests nothing. */
static bool is_off(const deepspeed_row *r, const json_t *value) {
    if (is_auto(value)) return true;
    if (r->off) {
        json_t *list = json_loads(r->off, 0, NULL);
        bool is = false;
        for (size_t i = 0; i < json_array_size(list); i++)
            is |= same_value(json_array_get(list, i), value);
        json_decref(list);
        return is;
    }
    if (json_is_object(value))
        return json_object_size(value) == 0 || json_is_false(json_object_get(value, "enabled"));
    return json_is_null(value) || json_is_false(value);
}

/* Returns a value as short text; NULL for an object or a list. Free the text with free(). */
static char *value_text(const json_t *value) {
    if (json_is_object(value) || json_is_array(value)) return NULL;
    return json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
}

/* Reports a key without effect. A group in which all keys are DeepSpeed's is reported as one
 * key. */
static void pass_over(translation *t, const char *path) {
    char group[PATH_BYTES];
    snprintf(group, sizeof group, "%.*s", (int)strcspn(path, "."), path);
    config_findings_add(t->f, CONFIG_NO_EFFECT, "%s", config_key_is_group(group) ? path : group);
}

static void refuse_key(translation *t, const char *path, const json_t *value, const char *why) {
    char *text = value_text(value);
    config_findings_add(t->f, CONFIG_WRONG, "%.300s: %.100s%s%s", path, text ? text : "",
                        text ? "; " : "", why);
    free(text);
}

static const char *optimizer_of(const json_t *tree) {
    const char *type = json_string_value(config_json_at(tree, "optimizer.type"));
    return type && strcasecmp(type, "SGD") == 0 ? "SGD" : "AdamW";
}

static const char *default_of(const translation *t, const char *path) {
    const config_key *key = config_key_of(path, optimizer_of(t->tree));
    return key ? key->fallback : NULL;
}

/* Sets dcp-train's key `ours` to `value`, the value of DeepSpeed's key `theirs`. Takes over the
 * reference to `value`. If `ours` already has another value, that value remains; this is an error
 * unless the command line set it. */
static void set_ours(translation *t, const char *ours, const char *theirs, json_t *value) {
    const json_t *there = config_json_at(t->tree, ours);
    char *text = value_text(value), *other = value_text(there);
    if (!there || is_auto(there)) {
        const bool is_told = text && !json_is_boolean(value);
        config_findings_add(t->f, CONFIG_TRANSLATED, "%s%s%.100s as %s", theirs, is_told ? " " : "",
                            is_told ? text : "", ours);
        config_json_set(t->tree, ours, json_incref(value));
        if (t->meant) config_json_set(t->meant, ours, json_incref(value));
    } else if (!same_value(there, value) && !config_json_at(t->from_line, ours)) {
        config_findings_add(t->f, CONFIG_WRONG, "%s: %.100s, but %s is %.100s: drop one of them",
                            theirs, text ? text : "", ours, other ? other : "something else");
    } else if (!same_value(there, value)) {
        config_findings_add(t->f, CONFIG_OVERRIDDEN, "%s %.100s (%s is %.100s)", theirs,
                            text ? text : "", ours, other ? other : "something else");
    }
    free(other);
    free(text);
    json_decref(value);
}

static void take_auto(translation *t, const char *ours) {
    const char *text = default_of(t, ours);
    const bool is_made = strcmp(ours, BATCH) == 0 && json_is_number(config_json_at(t->tree, MICRO));
    if (text && !is_made && !config_json_at(t->tree, ours))
        config_findings_add(t->f, CONFIG_AUTO, "%s %s", ours,
                            strcmp(text, "null") == 0 ? "follows" : text);
}

/* Returns true if the configuration selects a GPU. On the CPU, the host's memory holds everything
 * anyway, so there is nothing to offload to it. */
static bool is_on_gpu(const translation *t) {
    const char *device = json_string_value(config_json_at(t->tree, "device"));
    return device && strcmp(device, "cuda") == 0;
}

/* Notes which offloading the key at `path` requests. The value is an object such as {"device":
 * "cpu"}, or true, as in older files. `path` must have static storage. */
static void note_offload(translation *t, const char *path, const json_t *value) {
    const char *device =
        json_is_true(value) ? "cpu" : json_string_value(json_object_get(value, "device"));
    if (!device || strcmp(device, "none") == 0 || strcmp(device, "auto") == 0) {
        pass_over(t, path);
        return;
    }
    if (strcmp(device, "nvme") == 0) {
        json_t *folder = json_object_get(value, "nvme_path");
        if (json_string_length(folder) == 0) {
            refuse_key(t, path, value, "device nvme needs a nvme_path");
            return;
        }
        if (t->folder && !json_equal(t->folder, folder)) {
            refuse_key(t, path, folder,
                       "another nvme_path has been given, and only one is possible");
            return;
        }
        json_decref(t->folder);
        t->folder = json_incref(folder);
    } else if (strcmp(device, "cpu") != 0) {
        refuse_key(t, path, value, "device must be none, cpu or nvme");
        return;
    } else if (!is_on_gpu(t)) { /* the CPU's memory holds everything already */
        pass_over(t, path);
        return;
    }
    t->offload = path;
}

static void set_offload(translation *t) {
    if (!t->offload) return;
    if (t->folder && is_on_gpu(t)) {
        refuse_key(t, t->offload, NULL,
                   "offload files are not possible with a GPU: set this key's device to cpu");
    } else {
        set_ours(t, "fsdp.cpu_offload", t->offload, json_true());
        if (t->folder) set_ours(t, "fsdp.offload_path", t->offload, json_incref(t->folder));
    }
    json_decref(t->folder);
}

/* Applies a row to the key at `path`, which the caller has removed from the tree. Takes over the
 * reference to `value`. */
static void apply_row(translation *t, const deepspeed_row *r, const char *path, json_t *value) {
    if (r->kind == RENAMED && is_auto(value))
        take_auto(t, r->text);
    else if (r->kind == RENAMED)
        set_ours(t, r->text, path, json_incref(value));
    else if (r->kind == OFFLOAD)
        note_offload(t, r->path, value);
    else if (r->kind == REFUSED && !is_off(r, value))
        refuse_key(t, path, value, r->text);
    else
        pass_over(t, path);
    json_decref(value);
}

static bool is_shared_key(const char *path) {
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++)
        if (is_or_below(path, shared[i])) return true;
    return false;
}

static void walk(translation *t, json_t *node, const char *prefix);

static void walk_entry(translation *t, json_t *node, const char *name, const char *path) {
    json_t *value = json_object_get(node, name);
    const config_key *key = config_key_find(path);
    if (key && !(is_auto(value) && is_shared_key(path))) return;
    if (key) {
        json_object_del(node, name);
        take_auto(t, path);
        return;
    }
    const bool is_ours = config_key_is_group(path);
    if (json_is_object(value) && (is_ours || is_their_group(path))) {
        walk(t, value, path);
        if (!is_ours && json_object_size(value) == 0) json_object_del(node, name);
        return;
    }
    const deepspeed_row *r = find_their_row(path);
    const deepspeed_row *enabled = json_is_true(value) ? find_enabled_row(path) : NULL;
    if (enabled) r = enabled; /* "fp16": true, as in the arguments of transformers */
    if (!r) return;
    json_incref(value);
    json_object_del(node, name);
    apply_row(t, r, path, value);
}

/* Applies the rows to all keys of the object `node`. Collects their names first, because the walk
 * adds dcp-train's keys to the object. */
static void walk(translation *t, json_t *node, const char *prefix) {
    json_t *names = json_array(), *name;
    const char *text;
    json_t *value;
    size_t i;
    json_object_foreach(node, text, value) json_array_append_new(names, json_string(text));
    json_array_foreach(names, i, name) {
        char path[PATH_BYTES];
        text = json_string_value(name);
        const int n = snprintf(path, sizeof path, "%s%s%s", prefix, *prefix ? "." : "", text);
        if (n > 0 && (size_t)n < sizeof path && !strchr(text, '.')) walk_entry(t, node, text, path);
    }
    json_decref(names);
}

/* Sets the defaults of DeepSpeed's schedule for keys that the file does not give. */
static void complete_schedule(translation *t, double min_lr_ratio) {
    if (!config_json_at(t->tree, "scheduler.params.warmup_num_steps") &&
        !config_json_at(t->tree, "scheduler.params.warmup_steps"))
        config_json_set(t->tree, "scheduler.params.warmup_steps", json_integer(WARM_UP_STEPS));
    if (!config_json_at(t->tree, WARMUP_TYPE) || is_auto(config_json_at(t->tree, WARMUP_TYPE)))
        config_json_set(t->tree, WARMUP_TYPE, json_string("log"));
    if (min_lr_ratio >= 0 && !config_json_at(t->tree, "scheduler.params.cos_min_ratio") &&
        !config_json_at(t->tree, "scheduler.params.min_lr_ratio"))
        config_json_set(t->tree, "scheduler.params.min_lr_ratio", json_real(min_lr_ratio));
}

static const char *warmup_text(const translation *t) {
    const char *type = json_string_value(config_json_at(t->tree, WARMUP_TYPE));
    return type && strcmp(type, "log") == 0 ? " after a logarithmic warm-up"
                                            : " after a linear warm-up";
}

static void translate_type(translation *t, const char *path) {
    const char *name = json_string_value(config_json_at(t->tree, path));
    for (size_t i = 0; i < sizeof types / sizeof *types && name; i++) {
        if (strcmp(path, types[i].path) != 0 || strcasecmp(name, types[i].theirs) != 0) continue;
        if (types[i].is_schedule) complete_schedule(t, types[i].min_lr_ratio);
        if (types[i].as)
            config_findings_add(t->f, CONFIG_TRANSLATED, "%s %s as %s%s", path, name, types[i].as,
                                types[i].is_schedule ? warmup_text(t) : "");
        config_json_set(t->tree, path, json_string(types[i].ours));
        return;
    }
}

static bool has_theirs(const config_findings *f) {
    return config_findings_count(f, CONFIG_TRANSLATED) || config_findings_count(f, CONFIG_AUTO) ||
           config_findings_count(f, CONFIG_OVERRIDDEN) ||
           config_findings_count(f, CONFIG_NO_EFFECT);
}

/* Sets the batch as DeepSpeed does if a file gives only the micro-batch: the micro-batch times
 * accumulation and ranks. */
static void complete_batch(translation *t) {
    const json_t *micro = config_json_at(t->tree, MICRO);
    const json_t *accumulation = config_json_at(t->tree, ACCUMULATION);
    if (config_json_at(t->tree, BATCH) || !is_count(micro)) return;
    if (accumulation && !json_is_null(accumulation) && !is_count(accumulation)) return;
    const double times = is_count(accumulation) ? json_number_value(accumulation) : 1;
    const double batch = json_number_value(micro) * times * t->world;
    config_json_set(t->tree, BATCH, json_integer((json_int_t)batch));
    config_findings_add(
        t->f, CONFIG_TRANSLATED,
        MICRO " %.0f and " ACCUMULATION " %.0f on %d %s as " BATCH
              " %.0f (set train_batch_size for the same batch on any number of ranks)",
        json_number_value(micro), times, t->world, t->world == 1 ? "rank" : "ranks", batch);
}

/* In DeepSpeed, the number of ranks and any two of batch, micro-batch and accumulation determine
 * the third. Here only accumulation is derived, so a batch is the same on any number of ranks. */
static void drop_accumulation(translation *t) {
    const char *path = ACCUMULATION;
    const bool follows = config_json_at(t->tree, BATCH) && config_json_at(t->tree, MICRO);
    const json_t *value = config_json_at(t->tree, path);
    if (follows || !json_is_number(value) || config_json_at(t->from_line, path)) return;
    config_findings_add(t->f, CONFIG_TRANSLATED,
                        "%s as null, because train_batch_size and train_micro_batch_size_per_gpu "
                        "are not both given",
                        path);
    json_object_del(t->tree, path);
}

static void note_defaults(translation *t) {
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++) {
        const char *path = defaults[i].path, *ours = default_of(t, path);
        char as_auto[PATH_BYTES];
        snprintf(as_auto, sizeof as_auto, "%s %s", path, ours ? ours : "");
        if (ours && !config_findings_has(t->f, CONFIG_AUTO, as_auto) &&
            !config_json_at(t->tree, path) && strcmp(ours, defaults[i].theirs))
            config_findings_add(t->f, CONFIG_LEFT_OUT, "%s %s (DeepSpeed's is %s)", path, ours,
                                defaults[i].theirs);
    }
}

void config_deepspeed_translate(json_t *tree, const json_t *from_line, json_t *meant, int world,
                                config_findings *f) {
    translation t = {.tree = tree, .from_line = from_line, .meant = meant, .world = world, .f = f};
    translate_type(&t, "scheduler.type");
    translate_type(&t, "optimizer.type");
    walk(&t, tree, "");
    set_offload(&t);
    if (!has_theirs(f)) return;
    complete_batch(&t);
    drop_accumulation(&t);
    note_defaults(&t);
}
