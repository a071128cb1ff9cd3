/* The contents of an export: its tensors, their names and types, and their positions in the files.
 *
 * In both forms of an export, all positions are known before any data move. So ranks can divide the
 * bytes, rather than whole files, among themselves. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include <dcp/checkpoint.h>

#include "common/launch.h"
#include "common/tensor_names.h"

/* Functions return exit statuses, and report failures themselves. */

typedef struct export_item {
    const char *source; /* path in the checkpoint, valid until the checkpoint is closed; NULL:
                         * `count` is exported */
    float count;
    dcp_dtype stored;
    dcp_tensor tensor;  /* as exported: the name and type in the export */
    size_t file;        /* index in export_contents.files */
    uint64_t offset;    /* the position of its data in that file */
    uint64_t overflows; /* the number of finite elements that became infinite in the exported type;
                         * export_stream_share counts them */
} export_item;

typedef struct export_file {
    char name[64];   /* the name in the export's folder */
    size_t first, n; /* the items of the file */
    char *head;      /* the bytes before the data; NULL: HDF5 makes them */
    uint64_t head_bytes, bytes;
} export_file;

/* The items that are exported for one purpose: the model, or the optimizer's state. */
typedef struct export_part {
    const char *stem;      /* "model" */
    size_t first, n;       /* the part's items */
    size_t file, files;    /* the first file, and the number of files */
    uint64_t bytes, elems; /* sum over all items as exported */
} export_part;

typedef struct export_contents {
    export_item *items;
    size_t n;
    export_file *files;
    size_t n_files;
    export_part parts[2];
    size_t n_parts;
    uint64_t bytes;                   /* sum over all items as exported */
    const struct export_voice *voice; /* a voice to add; NULL: none */
    char unknown[256];                /* why export_contents_check could not compare; "" if it
                                       * could */
} export_contents;

typedef struct export_settings {
    bool hdf5, cast, with_optimizer, allow_mismatch;
    tensor_names names;
    dcp_dtype dtype;         /* of the model's floating-point tensors, if `cast` is set */
    uint64_t max_file_bytes; /* the most bytes of data in a safetensors file; a file with a single
                              * tensor may be larger */
} export_settings;

/* On rank 0: compares the model's tensors with the tensors that its configuration requires, because
 * transformers initializes missing tensors randomly. Reports differences, and fails unless they are
 * allowed. */
int export_contents_check(const dcp_checkpoint *ckpt, const export_settings *settings,
                          export_contents *contents);

/* Lists all tensors of /model except `left_out`, which is a path or NULL. Also lists the tensors of
 * /optimizer if the settings request them. */
int export_contents_make(const dcp_checkpoint *ckpt, const export_settings *settings,
                         const char *left_out, export_contents *out);
void export_contents_free(export_contents *contents);

/* Determines the names under which the tensors of the checkpoint's model are exported. With
 * `unwraps`, removes the parts that wrappers add. */
int export_contents_find_names(const dcp_checkpoint *ckpt, bool unwraps, tensor_names *names);

/* *out: the path of a copy of the embedding that need not be exported, because the configuration
 * ties the two and transformers makes the copy itself; NULL if there is none. Collective. */
int export_contents_find_tied(const launch *job, dcp_checkpoint *ckpt, const tensor_names *names,
                              const char **out);

/* Returns the model's configuration in the checkpoint; NULL if there is none. The caller releases
 * it. */
json_t *export_contents_config(const dcp_checkpoint *ckpt);

/* An export as one plain HDF5 file. */

/* On rank 0: creates one HDF5 file in `dir`. The file has all tensors, but not yet their data, and
 * the configuration as its attribute `config`. Sets the items' offsets. Returns an exit status,
 * after a message. */
int export_hdf5_file_create(const dcp_checkpoint *ckpt, export_contents *contents, const char *dir);
/* Returns true if export_hdf5_file_create may have made the file: it is an HDF5 file with the mark
 * of an export or, from an earlier version, with the attribute `config`. */
bool export_hdf5_file_is_ours(const char *path);

/* An export as a folder that Hugging Face's transformers loads, with its tokenizer and voices. */

/* A voice for which a talker was tuned. It is exported as a fixed voice: a row of the talker's
 * table of codes is the speaker's vector, and config.json has the speaker's name. */

typedef struct export_voice {
    char name[64]; /* in lower case, as it is looked up */
    uint64_t row;
    float *vector;
    size_t item; /* the index of the table's item in the contents */
} export_voice;

/* Reads the vector of the only speaker in `file`, which examples/talker/to_records.py made, and
 * chooses a row of the table. Returns an exit status. */
int export_voice_open(const dcp_checkpoint *ckpt, const export_contents *contents, const char *name,
                      const char *file, export_voice *out);
void export_voice_close(export_voice *voice);

/* Writes the voice into the exported file, whose tensors are already written. Returns an exit
 * status. */
int export_voice_write(const export_voice *voice, const export_contents *contents, const char *dir);

/* On rank 0: writes everything except the tensors' data into the empty folder `dir`: the tensors'
 * files with their headers, the index, config.json, and the files of /files. Returns an exit
 * status, after a message. */
int export_hf_folder_create(dcp_checkpoint *ckpt, const export_contents *contents, const char *dir);

/* Returns config.json: the model's configuration, plus the keys that transformers requires to load
 * it. NULL if the checkpoint has no configuration. The caller releases it. */
json_t *export_hf_folder_config(const dcp_checkpoint *ckpt, const export_contents *contents);
