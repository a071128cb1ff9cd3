/* The list of keys. Its order is that of --print-config; groups stand together. */
#include "config/schema.h"

#include <string.h>

#define KEY(name, kind, otherwise) .path = name, .type = kind, .fallback = otherwise
#define MAX_COUNT 1e15
#define MAX_INT 2147483647.0

const config_key config_keys[] = {
    {KEY("model", CONFIG_MODEL, NULL)},
    {KEY("init", CONFIG_TEXT, "\"random\"")},
    {KEY("data.type", CONFIG_CHOICE, "\"text\""), .choices = "text|tokens|idx|safetensors"},
    {KEY("data.path", CONFIG_TEXT, NULL)},
    {KEY("data.sequence_length", CONFIG_INTEGER, "256"), .min = 1, .max = MAX_INT, .nullable = 1},
    {KEY("data.dtype", CONFIG_CHOICE, "null"), .choices = "uint16|uint32", .nullable = 1},
    {KEY("data.eval_path", CONFIG_TEXT, "null"), .nullable = 1},
    {KEY("eval_every", CONFIG_INTEGER, "0"), .max = MAX_INT},
    {KEY("seed", CONFIG_INTEGER, "1"), .max = 9007199254740992.0},
    {KEY("max_steps", CONFIG_INTEGER, "200"), .min = 1, .max = MAX_INT},
    {KEY("train_batch_size", CONFIG_INTEGER, "32"), .min = 1, .max = MAX_INT},
    {KEY("train_micro_batch_size_per_gpu", CONFIG_INTEGER, "4"), .min = 1, .max = MAX_INT},
    {KEY("gradient_accumulation_steps", CONFIG_INTEGER, "null"), .min = 1, .max = MAX_INT,
     .nullable = 1},
    {KEY("gradient_clipping", CONFIG_NUMBER, "1.0"), .max = 1e30},
    {KEY("optimizer.type", CONFIG_CHOICE, "\"AdamW\""), .choices = "AdamW|SGD"},
    {KEY("optimizer.params.lr", CONFIG_NUMBER, "0.001"), .max = 1e30},
    {KEY("optimizer.params.betas", CONFIG_BETAS, "[0.9, 0.95]"), .optimizer = "AdamW"},
    {KEY("optimizer.params.eps", CONFIG_NUMBER, "1e-8"), .max = 1e30, .optimizer = "AdamW"},
    {KEY("optimizer.params.weight_decay", CONFIG_NUMBER, "0.1"), .max = 1e30, .optimizer = "AdamW"},
    {KEY("optimizer.params.momentum", CONFIG_NUMBER, "0.9"), .max = 1, .optimizer = "SGD"},
    {KEY("optimizer.params.dampening", CONFIG_NUMBER, "0"), .max = 1, .optimizer = "SGD"},
    {KEY("optimizer.params.weight_decay", CONFIG_NUMBER, "0"), .max = 1e30, .optimizer = "SGD"},
    {KEY("optimizer.params.nesterov", CONFIG_SWITCH, "false"), .optimizer = "SGD"},
    {KEY("optimizer.params.no_decay", CONFIG_NAMES, "[]")},
    {KEY("scheduler.type", CONFIG_CHOICE, "\"constant\""), .choices = "constant|linear|cosine|wsd"},
    {KEY("scheduler.params.warmup_steps", CONFIG_INTEGER, "0"), .max = MAX_INT},
    {KEY("scheduler.params.min_lr_ratio", CONFIG_NUMBER, "0.1"), .max = 1},
    {KEY("scheduler.params.decay_ratio", CONFIG_NUMBER, "0.2"), .max = 1},
    {KEY("bf16.enabled", CONFIG_SWITCH, "false")},
    {KEY("frozen", CONFIG_NAMES, "[]")},
    {KEY("zero_optimization.stage", CONFIG_INTEGER, "3"), .max = 3},
    {KEY("zero_optimization.ring", CONFIG_SWITCH, "false")},
    {KEY("zero_optimization.overlap_comm", CONFIG_SWITCH, "true")},
    {KEY("fsdp.wrap_policy", CONFIG_CHOICE, "\"transformer\""), .choices = "transformer|size"},
    {KEY("fsdp.min_num_params", CONFIG_INTEGER, "100000000"), .min = 1, .max = MAX_COUNT},
    {KEY("fsdp.reshard_after_forward", CONFIG_SWITCH, "true")},
    {KEY("fsdp.accumulate", CONFIG_CHOICE, "\"sharded\""), .choices = "sharded|local"},
    {KEY("fsdp.replicas", CONFIG_INTEGER, "1"), .min = 1, .max = MAX_INT},
    {KEY("fsdp.prefetch", CONFIG_INTEGER, "1"), .max = MAX_INT},
    {KEY("fsdp.shared_memory", CONFIG_SWITCH, "true")},
    {KEY("fsdp.activation_checkpointing", CONFIG_SWITCH, "false")},
    {KEY("fsdp.cpu_offload", CONFIG_SWITCH, "false")},
    {KEY("fsdp.offload_path", CONFIG_TEXT, "null"), .nullable = 1},
    {KEY("checkpoint.dir", CONFIG_TEXT, "\"ckpt\"")},
    {KEY("checkpoint.every", CONFIG_INTEGER, "1"), .max = MAX_INT},
    {KEY("checkpoint.keep", CONFIG_INTEGER, "3"), .max = MAX_INT},
    {KEY("checkpoint.async", CONFIG_SWITCH, "true")},
    {KEY("checkpoint.engine", CONFIG_CHOICE, "\"auto\""), .choices = "auto|direct|mpio"},
    {KEY("checkpoint.layout", CONFIG_CHOICE, "\"global\""), .choices = "global|sharded"},
    {KEY("checkpoint.resume", CONFIG_TEXT, "\"auto\"")},
    {KEY("checkpoint.overwrite", CONFIG_SWITCH, "false")},
    {KEY("checkpoint.staging_mb", CONFIG_INTEGER, "64"), .min = 0, .max = MAX_INT},
    {KEY("checkpoint.when_busy", CONFIG_CHOICE, "\"wait\""), .choices = "wait|skip"},
    {KEY("checkpoint.stores", CONFIG_STORES, "[]")},
    {KEY("device", CONFIG_CHOICE, "\"auto\""), .choices = "auto|cpu|cuda"},
    {KEY("cuda.tf32", CONFIG_SWITCH, "false")},
    {KEY("metrics", CONFIG_TEXT, "\"metrics.jsonl\""), .nullable = 1},
};
const size_t config_keys_count = sizeof config_keys / sizeof *config_keys;

const config_key *config_key_find(const char *path) {
    for (size_t i = 0; i < config_keys_count; i++)
        if (strcmp(config_keys[i].path, path) == 0) return &config_keys[i];
    return NULL;
}

const config_key *config_key_of(const char *path, const char *optimizer) {
    for (size_t i = 0; i < config_keys_count; i++)
        if (strcmp(config_keys[i].path, path) == 0 &&
            (!config_keys[i].optimizer || strcmp(config_keys[i].optimizer, optimizer) == 0))
            return &config_keys[i];
    return NULL;
}

int config_key_is_group(const char *path) {
    const size_t length = strlen(path);
    for (size_t i = 0; i < config_keys_count; i++)
        if (strncmp(config_keys[i].path, path, length) == 0 && config_keys[i].path[length] == '.')
            return 1;
    return 0;
}
