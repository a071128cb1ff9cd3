/* The contents of an export: which tensors, under which names and types, and where they lie in
 * which file.
 *
 * In both forms of an export every tensor has its position before any byte moves, so ranks divide
 * the bytes among themselves, not the files. */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include <dcp/checkpoint.h>

#include "common/launch.h"
#include "common/tensor_names.h"

/* Functions return exit statuses; they have reported failures. */

typedef struct export_item {
    const char *source; /* path in the checkpoint, valid until its close; NULL: exports `count` */
    float count;
    dcp_dtype stored;
    dcp_tensor tensor;  /* as exported: the name and type in the export */
    size_t file;        /* index into the files of the contents */
    uint64_t offset;    /* the position of its data in that file */
    uint64_t overflows; /* finite elements that became infinite in the exported type;
                           export_stream_share counts them */
} export_item;

typedef struct export_file {
    char name[64];   /* in the export's folder */
    size_t first, n; /* items */
    char *head;      /* what precedes the data; NULL: HDF5 makes it */
    uint64_t head_bytes, bytes;
} export_file;

/* The items that are exported for one purpose: the model, or the optimizer's state. */
typedef struct export_part {
    const char *stem;      /* "model" */
    size_t first, n;       /* items */
    size_t file, files;    /* files */
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
    const struct export_voice *voice; /* a voice to add, or NULL */
    char unknown[256];                /* why export_contents_check could not compare, or "" */
} export_contents;

typedef struct export_settings {
    int hdf5, cast, with_optimizer, allow_mismatch;
    tensor_names names;
    dcp_dtype dtype;         /* of the model's floating-point tensors, if `cast` is set */
    uint64_t max_file_bytes; /* a safetensors file ends before its data would exceed this; a single
                                tensor may be larger */
} export_settings;

/* On rank 0: compares the model's tensors with those that its configuration requires, since
 * transformers initializes missing tensors at random. Reports differences, and refuses them unless
 * they are allowed. */
int export_contents_check(const dcp_checkpoint *ckpt, const export_settings *settings,
                          export_contents *contents);

/* Lists all of /model except `left_out` (a path, or NULL), and /optimizer if requested. */
int export_contents_make(const dcp_checkpoint *ckpt, const export_settings *settings,
                         const char *left_out, export_contents *out);
void export_contents_free(export_contents *contents);

/* Determines the exported names of the checkpoint's model. With `unwraps`, removes wrappers'
 * parts. */
int export_contents_find_names(const dcp_checkpoint *ckpt, int unwraps, tensor_names *names);

/* The path of a copy of the embedding that transformers makes itself because the configuration ties
 * the two; NULL if there is none. Collective. */
int export_contents_find_tied(const launch *job, dcp_checkpoint *ckpt, const tensor_names *names,
                              const char **out);

/* The model's configuration in the checkpoint; NULL if it has none. The caller releases it. */
json_t *export_contents_config(const dcp_checkpoint *ckpt);

/* An export as one plain HDF5 file. */

/* On rank 0: creates one HDF5 file in `dir` with all tensors but without their data, and with the
 * configuration as its attribute `config`. Sets the items' offsets. Returns an exit status, after a
 * message. */
int export_hdf5_file_create(const dcp_checkpoint *ckpt, export_contents *contents, const char *dir);
/* Returns true if export_hdf5_file_create may have made the file: if it is HDF5 with the mark, or
 * with the attribute `config`, as earlier versions wrote it. */
int export_hdf5_file_is_ours(const char *path);

/* An export as the folder that Hugging Face's transformers loads, with its tokenizer and voices. */

/* A voice for which a talker was tuned, in the form of a fixed voice: the speaker's vector in a row
 * of the talker's table of codes, and the speaker's name in config.json. */

typedef struct export_voice {
    char name[64]; /* as it is looked up: in lower case */
    uint64_t row;
    float *vector;
    size_t item; /* the item of the contents that is the table */
} export_voice;

/* Reads the single speaker of `file`, which examples/talker/to_records.py made, and chooses a row.
 * Returns an exit status. */
int export_voice_open(const dcp_checkpoint *ckpt, const export_contents *contents, const char *name,
                      const char *file, export_voice *out);
void export_voice_close(export_voice *voice);

/* Writes the voice into the exported file, whose tensors are already written. Returns an exit
 * status. */
int export_voice_write(const export_voice *voice, const export_contents *contents, const char *dir);

/* On rank 0: writes everything except the tensors' data into the empty folder `dir`: files with
 * their headers, the index, config.json, and the contents of /files. Returns an exit status, after
 * a message. */
int export_hf_folder_create(dcp_checkpoint *ckpt, const export_contents *contents, const char *dir);

/* config.json: the model's configuration, completed with what transformers needs to load it. NULL
 * if the checkpoint has none. The caller releases it. */
json_t *export_hf_folder_config(const dcp_checkpoint *ckpt, const export_contents *contents);
