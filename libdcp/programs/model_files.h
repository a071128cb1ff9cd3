/* Which files of a Hugging Face folder belong to a model, by their names. */
#pragma once

/* A companion of the model beside its tensors and config.json, such as a tokenizer: an import keeps
 * it in the checkpoint, an export writes it again. */
int model_files_is_companion(const char *name);

/* Folders whose files are companions, all of them; the last one is NULL. */
extern const char *const model_files_folders[];

/* A companion that is its tokenizer's, or its chat template. */
int model_files_is_tokenizer(const char *name);

/* A file that an export may have written. */
int model_files_is_exported(const char *name);

/* What wrappers of PyTorch put into the names of all that they hold: torch.compile "_orig_mod",
 * FSDP and activation checkpointing theirs, each wherever a module was wrapped; DDP and DeepSpeed
 * "module", and PEFT "base_model.model", before all names of a model. The latter are words that a
 * model may use itself, so they count as a wrapper's only where names begin with them. */
enum { MODEL_WRAPPERS = 7 };
typedef struct model_wrapper {
    const char *part;
    int leads; /* only as the beginning of names */
} model_wrapper;
extern const model_wrapper model_wrappers[MODEL_WRAPPERS];
