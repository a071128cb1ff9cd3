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
    import_file *list; /* ascending by name */
    size_t n;
    uint64_t bytes;
} import_files;

/* Functions return exit statuses, having said what failed. */

int import_files_open(const char *folder, import_files *out);
void import_files_close(import_files *files);

/* Says on stderr which safetensors files of the folder are not the model's (by its index, or where
 * there is none), since nothing is imported from them; of the optimizer's unless `with_optimizer`.
 */
void import_note_unnamed(const char *folder, const dcp_st_reader *reader, int with_optimizer);

/* Says that code in the folder is not kept, where there is some. */
void import_note_code(const char *folder);

/* Says which other files of the folder are not kept. */
void import_note_left(const char *folder);

/* Of a folder without a model: says what its safetensors lack, if it has some, and how its pickled
 * weights become such. */
void import_note_others(const char *folder);

/* What the checkpoint keeps of the folder's config.json: all but transformers_version and keys that
 * begin with `_`. *out is released with json_decref. */
int import_config_read(const char *folder, json_t **out);

/* The state that rank `rank` of `size` contributes: its rows of every tensor and file, read when
 * the save asks for them. */
typedef struct import_source import_source;
int import_source_make(const import_model *model, const import_files *files, int rank, int size,
                       import_source **out);
const dcp_state *import_source_state(const import_source *source);
void import_source_free(import_source *source);
