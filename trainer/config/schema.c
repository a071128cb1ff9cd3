/* The table of keys, in the order in which --print-config prints them. The keys of a group are
 * adjacent. */
#include "config/schema.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/json_tree.h"
#include "config/lists.h"
#include "programs/fail.h"

#define KEY(name, kind, otherwise, what)                                                           \
    .path = name, .type = kind, .fallback = otherwise, .help = what
#define TO(member) .offset = offsetof(config, member)
#define MAX_COUNT 1e15
#define MAX_INT 2147483647.0

const config_key config_keys[] = {
    {KEY("model", CONFIG_MODEL, NULL,
         "a Hugging Face config.json, the folder that holds it, or the object itself")},
    {KEY("init", CONFIG_TEXT, "\"random\"",
         "initial weights: random, or from a Hugging Face folder or a checkpoint"),
     .words = "random", TO(init)},
    {KEY("data.type", CONFIG_WORD, "\"text\"", "type of the data at data.path"),
     .words = "text|tokens|records|speech|idx|safetensors", TO(data_type)},
    {KEY("data.path", CONFIG_TEXT, NULL, "a file, a folder or a glob"), TO(data_path)},
    {KEY("data.sequence_length", CONFIG_INTEGER, "256",
         "tokens per sample; null, for safetensors: the length in the file"),
     .min = 1, .max = MAX_INT, .nullable = true, TO(sequence)},
    {KEY("data.frames", CONFIG_INTEGER, "null",
         "for speech: frames of codes that a sample has room for"),
     .min = 1, .max = MAX_INT, .nullable = true, TO(frames)},
    {KEY("data.dtype", CONFIG_WORD, "null",
         "for tokens: type of an id; null: depends on the vocabulary's size"),
     .words = "uint16|uint32", .nullable = true,
     .idle_where = "data.type=text|records|speech|idx|safetensors", TO(data_dtype)},
    {KEY("data.eval_path", CONFIG_TEXT, "null", "evaluation data of the same type"),
     .nullable = true, TO(eval_path)},
    {KEY("data.sources", CONFIG_OBJECTS, "[]",
         "more training data of the same type: objects with path and weight"),
     .check = config_sources_check},
    {KEY("data.pack", CONFIG_SWITCH, "false",
         "pack several records into a sample; attention stays within a record"),
     TO(packs)},
    {KEY("data.tokenizer", CONFIG_TEXT, "null",
         "folder or file of a tokenizer, which checkpoints will contain"),
     .nullable = true, TO(tokenizer)},
    {KEY("eval_every", CONFIG_INTEGER, "0",
         "steps between evaluations; 0: only after the last step"),
     .max = MAX_INT, TO(eval_every)},
    {KEY("seed", CONFIG_INTEGER, "1",
         "seed of the random initialization and of the order of samples"),
     .max = 9007199254740992.0, TO(seed)},
    {KEY("max_steps", CONFIG_INTEGER, "200", "number of the last step"), .min = 1, .max = MAX_INT,
     TO(max_steps)},
    {KEY("train_batch_size", CONFIG_INTEGER, "32", "samples per step, of all ranks together"),
     .min = 1, .max = MAX_INT, TO(batch)},
    {KEY("train_micro_batch_size_per_gpu", CONFIG_INTEGER, "4",
         "samples that a rank computes at once"),
     .min = 1, .max = MAX_INT, TO(micro)},
    {KEY("gradient_accumulation_steps", CONFIG_INTEGER, "null",
         "micro-batches per rank and step; null: follows from the other keys"),
     .min = 1, .max = MAX_INT, .nullable = true, TO(accumulation)},
    {KEY("gradient_clipping", CONFIG_NUMBER, "1.0", "maximum norm of the gradient; 0: no clipping"),
     .max = 1e30, TO(clipping)},
    {KEY("optimizer.type", CONFIG_WORD, "\"AdamW\"", "the optimizer that updates the parameters"),
     .words = "AdamW|SGD", TO(optimizer)},
    {KEY("optimizer.params.lr", CONFIG_NUMBER, "0.001", "learning rate"), .max = 1e30, TO(lr)},
    {KEY("optimizer.params.betas", CONFIG_BETAS, "[0.9, 0.95]", "decay rates of the two moments"),
     .optimizer = "AdamW"},
    {KEY("optimizer.params.eps", CONFIG_NUMBER, "1e-8", "added to the root of the second moment"),
     .max = 1e30, .optimizer = "AdamW"},
    {KEY("optimizer.params.weight_decay", CONFIG_NUMBER, "0.1",
         "share of a parameter that is subtracted from it, times the learning rate"),
     .max = 1e30, .optimizer = "AdamW"},
    {KEY("optimizer.params.momentum", CONFIG_NUMBER, "0",
         "share of the buffer that remains in an update"),
     .max = 1, .optimizer = "SGD"},
    {KEY("optimizer.params.dampening", CONFIG_NUMBER, "0",
         "share of the gradient that is not added to the buffer"),
     .max = 1, .optimizer = "SGD"},
    {KEY("optimizer.params.weight_decay", CONFIG_NUMBER, "0",
         "this share of the parameter is added to the gradient"),
     .max = 1e30, .optimizer = "SGD"},
    {KEY("optimizer.params.nesterov", CONFIG_SWITCH, "false",
         "look ahead by one update (Nesterov)"),
     .optimizer = "SGD"},
    {KEY("optimizer.params.no_decay", CONFIG_NAMES, "[]",
         "globs of the parameters that do not decay")},
    {KEY("scheduler.type", CONFIG_CHOICE, "\"constant\"", "how the learning rate decreases"),
     .words = "constant|linear|cosine|wsd", TO(schedule)},
    {KEY("scheduler.params.warmup_steps", CONFIG_INTEGER, "0",
         "steps during which the learning rate rises from 0"),
     .max = MAX_INT, TO(warmup_steps)},
    {KEY("scheduler.params.warmup_type", CONFIG_CHOICE, "\"linear\"",
         "how the learning rate rises: linearly, or with the logarithm of the step"),
     .words = "linear|log", TO(warmup_is_log)},
    {KEY("scheduler.params.min_lr_ratio", CONFIG_NUMBER, "0.1",
         "final learning rate, as a fraction of optimizer.params.lr"),
     .max = 1, .idle_where = "scheduler.type=constant", TO(min_lr_ratio)},
    {KEY("scheduler.params.decay_ratio", CONFIG_NUMBER, "0.2",
         "for wsd: share of max_steps in which the learning rate decays"),
     .max = 1, .idle_where = "scheduler.type=constant|linear|cosine", TO(decay_ratio)},
    {KEY("bf16.enabled", CONFIG_SWITCH, "false", "compute in bf16"), TO(bf16)},
    {KEY("frozen", CONFIG_NAMES, "[]", "globs of the parameters that are not trained"), TO(frozen)},
    {KEY("zero_optimization.stage", CONFIG_INTEGER, "3", "what is sharded among ranks, as in ZeRO"),
     .max = 3, TO(stage)},
    {KEY("zero_optimization.ring", CONFIG_SWITCH, "false",
         "MPI adds gradients up: less memory, but bits depend on the number of ranks"),
     TO(ring)},
    {KEY("zero_optimization.overlap_comm", CONFIG_SWITCH, "true",
         "send gradients while the next ones are computed"),
     TO(overlap)},
    {KEY("fsdp.wrap_policy", CONFIG_CHOICE, "\"transformer\"",
         "unit that is gathered at once: a block, or blocks of a minimum size"),
     .words = "transformer|size", TO(wrap_by_size)},
    {KEY("fsdp.min_num_params", CONFIG_INTEGER, "100000000",
         "for size: minimum number of parameters per unit"),
     .min = 1, .max = MAX_COUNT, .idle_where = "fsdp.wrap_policy=transformer", TO(min_num_params)},
    {KEY("fsdp.reshard_after_forward", CONFIG_SWITCH, "true",
         "at stage 3, release parameters after use"),
     .idle_where = "zero_optimization.stage=0|1|2", TO(reshard)},
    {KEY("fsdp.accumulate", CONFIG_CHOICE, "\"sharded\"",
         "where the gradients of micro-batches are added up"),
     .words = "sharded|local", .idle_where = "zero_optimization.stage=0|1", TO(accumulate_local)},
    {KEY("fsdp.replicas", CONFIG_INTEGER, "1",
         "number of groups of ranks that each hold the state once"),
     .min = 1, .max = MAX_INT, TO(replicas)},
    {KEY("fsdp.prefetch", CONFIG_INTEGER, "1", "number of units that are gathered ahead"),
     .max = MAX_INT, TO(prefetch)},
    {KEY("fsdp.shared_memory", CONFIG_SWITCH, "true",
         "ranks of a host share one copy of gathered units"),
     TO(shares_memory)},
    {KEY("fsdp.activation_checkpointing", CONFIG_SWITCH, "false",
         "recompute activations in the backward pass"),
     TO(checkpointing)},
    {KEY("fsdp.cpu_offload", CONFIG_SWITCH, "false",
         "keep parameters and optimizer state outside the device's memory"),
     TO(offloads)},
    {KEY("fsdp.offload_path", CONFIG_TEXT, "null",
         "folder of the offload file; only without a GPU"),
     .nullable = true, TO(offload_path)},
    {KEY("checkpoint.dir", CONFIG_TEXT, "\"ckpt\"", "the directory of steps"), TO(dir)},
    {KEY("checkpoint.every", CONFIG_INTEGER, "1", "steps between saves; 0: only the last step"),
     .max = MAX_INT, TO(every)},
    {KEY("checkpoint.keep", CONFIG_INTEGER, "3", "number of newest steps to keep; 0: all"),
     .max = MAX_INT, TO(keep)},
    {KEY("checkpoint.keep_every", CONFIG_INTEGER, "0",
         "also keep steps whose numbers are multiples of it; 0: none"),
     .max = MAX_INT, TO(keep_every)},
    {KEY("checkpoint.keep_seconds", CONFIG_INTEGER, "0",
         "also keep one step per so many seconds; 0: none"),
     .max = MAX_INT, TO(keep_seconds)},
    {KEY("checkpoint.keep_best", CONFIG_INTEGER, "0",
         "also keep this number of steps with the best values of keep_metric"),
     .max = MAX_INT, TO(keep_best)},
    {KEY("checkpoint.keep_metric", CONFIG_WORD, "\"eval_loss\"",
         "the value by which steps are the best"),
     .words = "eval_loss|eval_accuracy|loss", .idle_where = "checkpoint.keep_best=0",
     TO(keep_metric)},
    {KEY("checkpoint.async", CONFIG_SWITCH, "true",
         "continue a save while the next step is computed"),
     TO(async)},
    {KEY("checkpoint.engine", CONFIG_WORD, "\"auto\"", "how files are written and read"),
     .words = "auto|direct|mpio", TO(engine_name)},
    {KEY("checkpoint.layout", CONFIG_CHOICE, "\"global\"",
         "one file for all ranks, or one file per rank"),
     .words = "global|sharded", TO(layout)},
    {KEY("checkpoint.resume", CONFIG_TEXT, "\"auto\"",
         "resume from the newest step, never, or from the step at a path"),
     .words = "auto|never", TO(resume)},
    {KEY("checkpoint.overwrite", CONFIG_SWITCH, "false",
         "whether resume=never may set aside existing steps"),
     .idle_where = "checkpoint.resume=auto", TO(overwrite)},
    {KEY("checkpoint.take_over", CONFIG_SWITCH, "false",
         "take over stores without locks whose last writer may still be running"),
     TO(takes_over)},
    {KEY("checkpoint.staging_mb", CONFIG_INTEGER, "64",
         "MiB that a save in flight may copy so that the next update can start"),
     .min = 0, .max = MAX_INT, .idle_where = "checkpoint.async=false", TO(staging_mb)},
    {KEY("checkpoint.when_busy", CONFIG_CHOICE, "\"wait\"",
         "what to do if a save is due while another one is in flight"),
     .words = "wait|skip", .idle_where = "checkpoint.async=false", TO(skip_when_busy)},
    {KEY("checkpoint.stripe_count", CONFIG_INTEGER, "0",
         "object servers per file on Lustre; -1: all; 0: depends on the number of hosts"),
     .min = -1, .max = 2000, TO(stripe_count)},
    {KEY("checkpoint.stripe_bytes", CONFIG_INTEGER, "0",
         "bytes per stripe on Lustre, a multiple of 65536; 0: 4 MiB"),
     .max = 4294901760.0, TO(stripe_bytes)},
    {KEY("checkpoint.domain", CONFIG_TEXT, "null",
         "the failure domain of a rank, with {rank}, {host} or {env:NAME}; null: its host"),
     .nullable = true, .is_name = true, TO(domain)},
    {KEY("checkpoint.stores", CONFIG_OBJECTS, "[]", "faster stores in front of checkpoint.dir"),
     .check = config_stores_check, .complete = config_stores_complete},
    {KEY("device", CONFIG_WORD, "\"auto\"", "device that computes; cuda is experimental"),
     .words = "auto|cpu|cuda", TO(device)},
    {KEY("cuda.tf32", CONFIG_SWITCH, "false", "a GPU may round operands of fp32 products to tf32"),
     .idle_where = "device=cpu", TO(tf32)},
    {KEY("metrics", CONFIG_TEXT, "\"<checkpoint.dir>/metrics.jsonl\"",
         "file with one JSON object per step; null: none"),
     .nullable = true, TO(metrics)},
    {KEY("log_every", CONFIG_INTEGER, "null",
         "steps between lines on stdout; null: one line per step, but at most one per second"),
     .min = 1, .max = MAX_INT, .nullable = true, TO(log_every)},
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

bool config_key_is_group(const char *path) {
    const size_t length = strlen(path);
    for (size_t i = 0; i < config_keys_count; i++)
        if (strncmp(config_keys[i].path, path, length) == 0 && config_keys[i].path[length] == '.')
            return true;
    return false;
}

/* Returns true if the value is an integer in the key's range. A real number without a fraction,
 * such as 1e3, is an integer, too. */
static bool integer_fits(const config_key *key, const json_t *value) {
    const double number = json_number_value(value);
    return json_is_number(value) && number == floor(number) && number >= key->min &&
           number <= key->max;
}

static bool number_fits(const config_key *key, const json_t *value) {
    if (!json_is_number(value)) return false;
    const double number = json_number_value(value);
    return number >= key->min && number <= key->max;
}

/* The index of the text among the words, which are separated by |; -1 if it is none of them. */
static int word_number(const char *words, const char *text) {
    if (!text) return -1;
    for (int number = 0;; number++) {
        const size_t length = strcspn(words, "|");
        if (strlen(text) == length && strncmp(words, text, length) == 0) return number;
        if (words[length] == '\0') return -1;
        words += length + 1;
    }
}

static bool betas_fit(const json_t *value) {
    if (json_array_size(value) != 2) return false;
    for (size_t i = 0; i < 2; i++) {
        const json_t *beta = json_array_get(value, i);
        if (!json_is_number(beta)) return false;
        const double number = json_number_value(beta);
        if (!(number >= 0 && number < 1)) return false;
    }
    return true;
}

static bool names_fit(const json_t *value) {
    if (!json_is_array(value)) return false;
    for (size_t i = 0; i < json_array_size(value); i++)
        if (!json_is_string(json_array_get(value, i))) return false;
    return true;
}

static bool value_fits(const config_key *key, const json_t *value) {
    if (json_is_null(value)) return key->nullable;
    switch (key->type) {
    case CONFIG_TEXT:
        return json_string_length(value) > 0;
    case CONFIG_WORD:
    case CONFIG_CHOICE:
        return word_number(key->words, json_string_value(value)) >= 0;
    case CONFIG_INTEGER:
        return integer_fits(key, value);
    case CONFIG_NUMBER:
        return number_fits(key, value);
    case CONFIG_BETAS:
        return betas_fit(value);
    case CONFIG_SWITCH:
        return json_is_boolean(value);
    case CONFIG_NAMES:
        return names_fit(value);
    case CONFIG_OBJECTS:
        return json_is_array(value);
    case CONFIG_MODEL:
        return json_is_object(value) || json_string_length(value) > 0;
    }
    return false;
}

/* Writes to `out`, as text for a message, what the key requires. */
static void expect(const config_key *key, char *out, size_t size) {
    static const char *const fixed[] = {
        [CONFIG_TEXT] = "a non-empty string",
        [CONFIG_BETAS] = "two numbers from 0 to below 1",
        [CONFIG_SWITCH] = "true or false",
        [CONFIG_NAMES] = "a list of strings",
        [CONFIG_OBJECTS] = "a list of objects",
        [CONFIG_MODEL] = "the path of a config.json, or an object",
    };
    if (key->words && key->type != CONFIG_TEXT)
        snprintf(out, size, "one of %s", key->words);
    else if (key->type == CONFIG_INTEGER)
        snprintf(out, size, "an integer from %.16g to %.16g", key->min, key->max);
    else if (key->type == CONFIG_NUMBER)
        snprintf(out, size, "a number from %g to %g", key->min, key->max);
    else
        snprintf(out, size, "%s", fixed[key->type]);
    if (key->nullable) strncat(out, ", or null", size - strlen(out) - 1);
}

/* Returns the remedy, as the end of a message, for a value that users of other programs or versions
 * may give; "" if there is none. */
static const char *advice(const config_key *key, const char *text) {
    if (text && strcmp(text, "auto") == 0)
        return "; this key has no automatic value: give a value, or leave it out";
    if (text && strcmp(key->path, "checkpoint.engine") == 0 && strcmp(text, "cufile") == 0)
        return "; cufile was removed, because no machine had run it: use auto";
    if (strcmp(key->path, "optimizer.type") == 0)
        return "; set optimizer.type=AdamW, for which DeepSpeed's Adam, FusedAdam and "
               "DeepSpeedCPUAdam are accepted as well";
    if (strcmp(key->path, "scheduler.type") == 0)
        return "; set one of them, or DeepSpeed's WarmupLR, WarmupDecayLR or WarmupCosineLR";
    return "";
}

/* Messages contain the key's full path, the given value and what the key requires. */
int config_key_check(const config_key *key, const json_t *value, dcp_error *err) {
    const bool is_path = (key->type == CONFIG_TEXT && !key->is_name) || key->type == CONFIG_MODEL;
    if (is_path && core_path_check(key->path, json_string_value(value), err))
        return DCP_ERR_UNSUPPORTED;
    if (value_fits(key, value)) return key->check ? key->check(key->path, value, err) : DCP_OK;
    char *given = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
    char wanted[160];
    expect(key, wanted, sizeof wanted);
    const int status =
        core_fail(err, DCP_ERR_ARG, "%s: %.200s is not %s%s", key->path,
                  given ? given : "the value", wanted, advice(key, json_string_value(value)));
    free(given);
    return status;
}

/* Returns a new reference to the key's value: the given one, or the default. */
static json_t *given_or_default(const config_key *key, const json_t *given) {
    json_t *value = config_json_at(given, key->path);
    return value ? json_incref(value) : json_loads(key->fallback, JSON_DECODE_ANY, NULL);
}

/* Adds the key to `f` if its value is not the default but has no effect, because the condition in
 * idle_where holds. */
static void note_if_idle(const config_key *key, const json_t *given, config_findings *f) {
    char path[CONFIG_PATH_MAX];
    const size_t length = strcspn(key->idle_where, "=");
    snprintf(path, sizeof path, "%.*s", (int)length, key->idle_where);
    json_t *value = given_or_default(key, given),
           *other = given_or_default(config_key_find(path), given);
    json_t *fallback = json_loads(key->fallback, JSON_DECODE_ANY, NULL);
    char *text = json_is_string(other) ? NULL : json_dumps(other, JSON_ENCODE_ANY);
    const char *said = text ? text : json_string_value(other);
    if (!json_equal(value, fallback) && word_number(key->idle_where + length + 1, said) >= 0)
        config_findings_add(f, CONFIG_IDLE, "%s (%s is %s)", key->path, path, said);
    free(text);
    json_decref(fallback);
    json_decref(other);
    json_decref(value);
}

void config_schema_note_idle(const json_t *given, config_findings *f) {
    for (size_t i = 0; i < config_keys_count; i++)
        if (config_keys[i].idle_where && config_json_at(given, config_keys[i].path))
            note_if_idle(&config_keys[i], given, f);
}

static void fill_member(const config_key *key, const json_t *value, void *member) {
    switch (key->type) {
    case CONFIG_TEXT:
    case CONFIG_WORD:
        *(const char **)member = json_string_value(value);
        break;
    case CONFIG_CHOICE:
        *(int *)member = word_number(key->words, json_string_value(value));
        assert(*(int *)member >= 0); /* value_fits has checked the word */
        break;
    case CONFIG_INTEGER:
        *(uint64_t *)member = (uint64_t)json_integer_value(value);
        break;
    case CONFIG_NUMBER:
        *(double *)member = json_number_value(value);
        break;
    case CONFIG_SWITCH:
        *(bool *)member = json_is_true(value);
        break;
    default:
        *(const json_t **)member = value;
    }
}

void config_schema_fill(config *c) {
    for (size_t i = 0; i < config_keys_count; i++) {
        const config_key *key = &config_keys[i];
        if (key->offset)
            fill_member(key, config_json_at(c->tree, key->path), (char *)c + key->offset);
    }
}

/* A short description of the values that a key accepts. */
static void describe_values(const config_key *key, char *out, size_t size) {
    static const char *const fixed[] = {
        [CONFIG_TEXT] = "TEXT",   [CONFIG_NUMBER] = "NUMBER", [CONFIG_SWITCH] = "true|false",
        [CONFIG_BETAS] = "[B,B]", [CONFIG_NAMES] = "LIST",    [CONFIG_OBJECTS] = "LIST",
        [CONFIG_MODEL] = "PATH",
    };
    if (key->words)
        snprintf(out, size, "%s%s", key->words, key->type == CONFIG_TEXT ? "|PATH" : "");
    else if (key->type == CONFIG_INTEGER)
        snprintf(out, size, "%.16g..%.16g", key->min, key->max);
    else
        snprintf(out, size, "%s", fixed[key->type]);
}

void config_schema_print(void) {
    for (size_t i = 0; i < config_keys_count; i++) {
        const config_key *key = &config_keys[i];
        char values[64];
        describe_values(key, values, sizeof values);
        printf("%-38s %-43s %-33s %s%s%s%s\n", key->path, values,
               key->fallback ? key->fallback : "-", key->help, key->optimizer ? " (of " : "",
               key->optimizer ? key->optimizer : "", key->optimizer ? ")" : "");
    }
}
