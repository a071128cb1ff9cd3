/* A Hugging Face folder as the source of a save. */
#pragma once

#include <jansson.h>

#include <dcp/safetensors.h>
#include <dcp/state.h>

#include "import/model_tensors.h"

typedef struct import_file {
    char *name;
    int fd;
    uint64_t bytes;
} import_file;

/* The model's companion files, which an export writes again: tokenizer, generation,
 * preprocessing. */
typedef struct import_files {
    import_file *list; /* in ascending order of names */
    size_t n;
    uint64_t bytes;
} import_files;

/* Functions return exit statuses; they have reported failures. */

int import_files_open(const char *folder, import_files *out);
void import_files_close(import_files *files);

/* Reports on stderr which safetensors files of the folder do not belong to the model (by its index,
 * or because there is none), since they are not imported. Includes the optimizer's files unless
 * `with_optimizer` is set. */
void import_note_unnamed(const char *folder, const dcp_st_reader *reader, int with_optimizer);

/* Reports that code in the folder is not stored, if there is any. */
void import_note_code(const char *folder);

/* Reports which other files of the folder are not stored. */
void import_note_left(const char *folder);

/* For a folder without a model: reports what is wrong with its safetensors files, if it has some,
 * and how to convert its pickled weights to safetensors. */
void import_note_others(const char *folder);

/* Reads the folder's config.json as the checkpoint stores it: without transformers_version and keys
 * that begin with `_`. Release *out with json_decref. */
int import_config_read(const char *folder, json_t **out);

/* The state that rank `rank` of `size` contributes: its rows of every tensor and file, read when
 * the save requests them. */
typedef struct import_source import_source;
int import_source_make(const import_model *model, const import_files *files, int rank, int size,
                       import_source **out);
const dcp_state *import_source_state(const import_source *source);
void import_source_free(import_source *source);
