/* Which files of a Hugging Face folder belong to a model. */
#ifndef RESHARD_KEPT_H
#define RESHARD_KEPT_H

/* Beside the tensors and config.json: an import keeps it, an export gives it back. */
int kept_name(const char *name);

/* What an export may have written. */
int exported_name(const char *name);

#endif
