/* Decides which files of a Hugging Face folder belong to a model, by the names of the files. */
#pragma once

#include <stdbool.h>

/* Returns true for a companion: a file of the model other than its tensors and config.json, such as
 * a tokenizer. An import stores it in the checkpoint, and an export writes it again. */
bool model_files_is_companion(const char *name);

/* Folders in which all files are companions; NULL ends the list. */
extern const char *const model_files_folders[];

/* Returns true for companions that belong to the tokenizer or are its chat template. */
bool model_files_is_tokenizer(const char *name);

/* Returns true for files that an export may have written. */
bool model_files_is_exported(const char *name);

/* The parts that PyTorch's wrappers add to the names of a model's tensors. torch.compile
 * ("_orig_mod"), FSDP and activation checkpointing each add a part wherever a module is wrapped.
 * DDP and DeepSpeed put "module", and PEFT puts "base_model.model", before all names of a model. A
 * model may use "module" and "base_model.model" itself, so these words count as a wrapper's part
 * only at the beginning of names. */
enum { MODEL_WRAPPERS = 7 };
typedef struct model_wrapper {
    const char *part;
    bool leads; /* counts only at the beginning of names */
} model_wrapper;
extern const model_wrapper model_wrappers[MODEL_WRAPPERS];
