/* Which files of a Hugging Face folder belong to a model. */
#ifndef RESHARD_MODEL_FILES_H
#define RESHARD_MODEL_FILES_H

/* Beside the tensors and config.json: an import keeps it, an export gives it back. */
int model_files_has(const char *name);

/* What an export may have written. */
int model_files_is_exported(const char *name);

#endif
