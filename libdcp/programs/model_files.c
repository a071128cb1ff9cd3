#include "programs/model_files.h"

#include <fnmatch.h>
#include <stdbool.h>
#include <stddef.h>

static const char *const tokenizers[] = {
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "*.model", /* SentencePiece */
    "tokenizer.model.v*",
    "*.tiktoken",
    "tekken.json", /* Mistral's */
    "tokenization_*.py",
    "chat_template.json",
    "chat_template.jinja",
};

static const char *const others[] = {
    "generation_config.json",
    "*preprocessor_config.json",
    "processor_config.json",
};

static const char *const own_files[] = {
    "config.json",
    "model*.safetensors",
    "optimizer*.safetensors",
    "*.safetensors.index.json",
};

static bool is_in(const char *name, const char *const *patterns, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (fnmatch(patterns[i], name, FNM_PERIOD) == 0) return true;
    return false;
}

bool model_files_is_tokenizer(const char *name) {
    return is_in(name, tokenizers, sizeof tokenizers / sizeof *tokenizers);
}

bool model_files_is_companion(const char *name) {
    return model_files_is_tokenizer(name) || is_in(name, others, sizeof others / sizeof *others);
}

const char *const model_files_folders[] = {"speech_tokenizer", "additional_chat_templates", NULL};

bool model_files_is_exported(const char *name) {
    return model_files_is_companion(name) ||
           is_in(name, own_files, sizeof own_files / sizeof *own_files);
}

const model_wrapper model_wrappers[MODEL_WRAPPERS] = {
    {"_orig_mod.", false},   {"_fsdp_wrapped_module.", false},
    {"_fpw_module.", false}, {"_checkpoint_wrapped_module.", false},
    {"base_layer.", false}, /* PEFT's, in the names of a layer with an adapter */
    {"module.", true},       {"base_model.model.", true},
};
