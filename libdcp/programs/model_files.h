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
