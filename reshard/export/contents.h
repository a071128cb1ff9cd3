/* What is exported: which tensors go out, under which names and types, and where they lie in which
 * file.
 *
 * Both forms of an export are files in which every tensor has its place before a byte of it moves:
 * so ranks share the bytes, not the files. */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include <dcp/checkpoint.h>

#include "common/launch.h"
#include "common/tensor_names.h"

/* Functions return exit statuses, having said what failed. */

typedef struct export_item {
    const char
        *source; /* path in the checkpoint; valid until its close. NULL: `count` is exported */
    float count;
    dcp_dtype stored;
    dcp_tensor tensor;  /* as it is exported: its name there, in the type asked for */
    size_t file;        /* of the contents's files */
    uint64_t offset;    /* of its data in that file */
    uint64_t overflows; /* finite elements that the type made infinite; export_stream_share counts
                           them */
} export_item;

typedef struct export_file {
    char name[64];   /* in the export's folder */
    size_t first, n; /* items */
    char *head;      /* what comes before the data; NULL: HDF5 makes it */
    uint64_t head_bytes, bytes;
} export_file;

/* What is exported for one purpose: the model, or the optimizer's state. */
typedef struct export_part {
    const char *stem;      /* "model" */
    size_t first, n;       /* items */
    size_t file, files;    /* files */
    uint64_t bytes, elems; /* of all items as exported */
} export_part;

typedef struct export_contents {
    export_item *items;
    size_t n;
    export_file *files;
    size_t n_files;
    export_part parts[2];
    size_t n_parts;
    uint64_t bytes;                   /* of all items as exported */
    const struct export_voice *voice; /* one more; NULL: none */
    char unknown[256];                /* why export_contents_check compared nothing, or "" */
} export_contents;

typedef struct export_settings {
    int hdf5, cast, with_optimizer, allow_mismatch;
    tensor_names names;
    dcp_dtype dtype;         /* of the model's floating tensors, where `cast` is set */
    uint64_t max_file_bytes; /* a safetensors file is closed before its data would exceed it (one
                                tensor may) */
} export_settings;

/* Rank 0: whether the model's tensors are those that its configuration asks for, as transformers
 * starts at random what it misses. Says what differs; refuses it unless that is allowed. */
int export_contents_check(const dcp_checkpoint *ckpt, const export_settings *settings,
                          export_contents *contents);

/* All of /model but for `left_out` (a path, or NULL), and of /optimizer where asked for. */
int export_contents_make(const dcp_checkpoint *ckpt, const export_settings *settings,
                         const char *left_out, export_contents *out);
void export_contents_free(export_contents *contents);

/* What the names of the checkpoint's model become; with `unwraps` without what wrappers put there.
 */
int export_contents_find_names(const dcp_checkpoint *ckpt, int unwraps, tensor_names *names);

/* The path of a copy of the embedding that transformers makes by itself, since the configuration
 * ties the two; NULL: there is none. Collective. */
int export_contents_find_tied(const launch *job, dcp_checkpoint *ckpt, const tensor_names *names,
                              const char **out);

/* The model's configuration in the checkpoint; NULL: it has none. The caller's. */
json_t *export_contents_config(const dcp_checkpoint *ckpt);

/* An export as one plain HDF5 file. */

/* Rank 0: one HDF5 file of all tensors in `dir`, without data, and the configuration as its
 * attribute `config`. Sets the items' offsets. An exit status, after a message. */
int export_hdf5_file_create(const dcp_checkpoint *ckpt, export_contents *contents, const char *dir);
/* Whether the file is one that export_hdf5_file_create may have made: HDF5 with its mark, or with
 * that attribute, as earlier versions have it. */
int export_hdf5_file_is_ours(const char *path);

/* An export as the folder that Hugging Face's transformers loads, with its tokenizer and voices. */

/* A voice that a talker was tuned on, as a folder of fixed voices has it: a speaker's vector in a
 * row of the talker's table of codes, and its name in config.json. */

typedef struct export_voice {
    char name[64]; /* as it is looked up: in lower case */
    uint64_t row;
    float *vector;
    size_t item; /* of the contents: the table */
} export_voice;

/* Reads the one speaker of `file`, which examples/talker/to_records.py made, and finds a row. An
 * exit status. */
int export_voice_open(const dcp_checkpoint *ckpt, const export_contents *contents, const char *name,
                      const char *file, export_voice *out);
void export_voice_close(export_voice *voice);

/* Into the exported file, whose tensors are written. An exit status. */
int export_voice_write(const export_voice *voice, const export_contents *contents, const char *dir);

/* An export as the folder that Hugging Face's transformers loads. */

/* Rank 0: everything in the empty folder `dir` but the tensors' data: files with their headers,
 * index, config.json, what /files holds. An exit status, after a message. */
int export_hf_folder_create(dcp_checkpoint *ckpt, const export_contents *contents, const char *dir);

/* config.json: the model's configuration with what transformers needs to load it; NULL: the
 * checkpoint has none. The caller's. */
json_t *export_hf_folder_config(const dcp_checkpoint *ckpt, const export_contents *contents);
