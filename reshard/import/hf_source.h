/* A Hugging Face folder as the source of a save. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include <dcp/safetensors.h>
#include <dcp/state.h>

#include "import/model_tensors.h"

typedef struct import_file {
    char *name;
    int fd;
    uint64_t bytes;
} import_file;

/* The model's companion files, which an export writes again: the files for the tokenizer, for
 * generation and for preprocessing. */
typedef struct import_files {
    import_file *list; /* in ascending order of names */
    size_t n;
    uint64_t bytes;
} import_files;

/* Functions return exit statuses, and report failures themselves. */

int import_files_open(const char *folder, import_files *out);
void import_files_close(import_files *files);

/* Reports on stderr which safetensors files of the folder are not imported, because they do not
 * belong to the model: the index does not name them, or there is no index. Without
 * `with_optimizer`, the first of the optimizer's files is reported, too. */
void import_note_unnamed(const char *folder, const dcp_st_reader *reader, bool with_optimizer);

/* If there is code in the folder, reports that it is not stored. */
void import_note_code(const char *folder);

/* Reports which other entries of the folder are not stored. */
void import_note_left(const char *folder);

/* For a folder without a model: reports why its safetensors files, if any, cannot be used, and how
 * to convert pickled weights to safetensors. */
void import_note_others(const char *folder);

/* Reads the folder's config.json, and removes the keys that checkpoints do not store:
 * transformers_version, and keys that begin with `_`. Release *out with json_decref. */
int import_config_read(const char *folder, json_t **out);

/* The state of one rank of the import: its rows of every tensor and file. They are read when the
 * save requests them. */
typedef struct import_source import_source;
int import_source_make(const import_model *model, const import_files *files, int rank, int size,
                       import_source **out);
const dcp_state *import_source_state(const import_source *source);
void import_source_free(import_source *source);
