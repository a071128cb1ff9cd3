/* Guesses which key was meant. If the name is a key of another trainer, the guess is dcp-train's
 * counterpart. Otherwise, the guess is the key at the smallest edit distance, unless that distance
 * is too large for a slip. A key of the same name in another group counts as one edit away, because
 * a wrong group is as likely a slip as a wrong letter. */
#include "config/suggest.h"

#include <stdbool.h>
#include <string.h>

#include "programs/arguments.h"

static const struct {
    const char *theirs, *ours;
} other_names[] = {
    {"learning_rate", "optimizer.params.lr"},
    {"max_lr", "optimizer.params.lr"},
    {"beta1", "optimizer.params.betas"},
    {"beta2", "optimizer.params.betas"},
    {"adam_beta1", "optimizer.params.betas"},
    {"adam_beta2", "optimizer.params.betas"},
    {"epsilon", "optimizer.params.eps"},
    {"adam_epsilon", "optimizer.params.eps"},
    {"optim", "optimizer.type"},
    {"lr_scheduler", "scheduler.type"},
    {"lr_scheduler_type", "scheduler.type"},
    {"num_warmup_steps", "scheduler.params.warmup_steps"},
    {"warmup_ratio", "scheduler.params.warmup_steps"},
    {"warmup_iters", "scheduler.params.warmup_steps"},
    {"min_lr", "scheduler.params.min_lr_ratio"},
    {"batch_size", "train_batch_size"},
    {"global_batch_size", "train_batch_size"},
    {"micro_batch_size", "train_micro_batch_size_per_gpu"},
    {"per_device_train_batch_size", "train_micro_batch_size_per_gpu"},
    {"grad_clip", "gradient_clipping"},
    {"max_grad_norm", "gradient_clipping"},
    {"clip_grad_norm", "gradient_clipping"},
    {"steps", "max_steps"},
    {"epochs", "max_steps"},
    {"max_iters", "max_steps"},
    {"total_steps", "max_steps"},
    {"train_steps", "max_steps"},
    {"num_epochs", "max_steps"},
    {"num_train_epochs", "max_steps"},
    {"dataset", "data.path"},
    {"block_size", "data.sequence_length"},
    {"seq_len", "data.sequence_length"},
    {"seq_length", "data.sequence_length"},
    {"max_seq_length", "data.sequence_length"},
    {"context_length", "data.sequence_length"},
    {"packing", "data.pack"},
    {"sample_packing", "data.pack"},
    {"eval_steps", "eval_every"},
    {"eval_interval", "eval_every"},
    {"logging_steps", "log_every"},
    {"log_interval", "log_every"},
    {"logging_dir", "metrics"},
    {"data_seed", "seed"},
    {"output_dir", "checkpoint.dir"},
    {"save_steps", "checkpoint.every"},
    {"save_every", "checkpoint.every"},
    {"save_interval", "checkpoint.every"},
    {"save_total_limit", "checkpoint.keep"},
    {"resume_from_checkpoint", "checkpoint.resume"},
    {"gradient_checkpointing", "fsdp.activation_checkpointing"},
    {"mixed_precision", "bf16.enabled"},
    {"model_name_or_path", "model"},
};

static const char *last_part(const char *path) {
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

typedef struct search {
    const char *path;
    char *best; /* [CONFIG_PATH_MAX] */
    size_t least;
} search;

static void consider(search *s, const char *candidate, size_t length) {
    char name[CONFIG_PATH_MAX];
    memcpy(name, candidate, length);
    name[length] = '\0';
    const size_t whole = program_word_distance(s->path, name);
    const size_t moved = program_word_distance(last_part(s->path), last_part(name)) + 1;
    const size_t d = whole < moved ? whole : moved;
    if (d >= s->least) return;
    s->least = d;
    memcpy(s->best, name, length + 1);
}

/* Returns dcp-train's counterpart if the last part of `path` is a key of another trainer, otherwise
 * NULL. If `path` begins with a group, returns only a key of that group. */
static const char *name_here(const char *path) {
    const char *dot = strchr(path, '.');
    const size_t group = dot ? (size_t)(dot + 1 - path) : 0;
    for (size_t i = 0; i < sizeof other_names / sizeof *other_names; i++)
        if (strcmp(other_names[i].theirs, last_part(path)) == 0)
            return strncmp(other_names[i].ours, path, group) == 0 ? other_names[i].ours : NULL;
    return NULL;
}

/* The largest number of edits that can be slips in a word of this length. */
static size_t most_slips(const char *word) { return 1 + strlen(word) / 6; }

bool config_suggest_key(const char *path, char best[CONFIG_PATH_MAX]) {
    search s = {.path = path, .best = best, .least = most_slips(last_part(path)) + 1};
    const char *here = name_here(path);
    *best = '\0';
    if (here) {
        strcpy(best, here);
        return true;
    }
    for (size_t i = 0; i < config_keys_count; i++) {
        const char *key = config_keys[i].path;
        consider(&s, key, strlen(key));
        for (const char *dot = strchr(key, '.'); dot; dot = strchr(dot + 1, '.'))
            consider(&s, key, (size_t)(dot - key));
    }
    return *best != '\0';
}
