/* dcp-export in parts: what goes out, the two forms in which it does, and the way there.
 *
 * Both forms are files in which every tensor has its place before a byte of it moves: so ranks
 * share the bytes, not the files. */
#ifndef RESHARD_EXPORT_H
#define RESHARD_EXPORT_H

#include <jansson.h>
#include <stddef.h>

#include <dcp/checkpoint.h>

#include "common/launch.h"

/* Functions return exit statuses, having said what failed. */

typedef struct export_item {
    const char *source; /* path in the checkpoint; valid until its close */
    dcp_dtype stored;
    dcp_tensor tensor;  /* as it is exported: its name there, in the type asked for */
    size_t file;        /* of the plan's files */
    uint64_t offset;    /* of its data in that file */
    uint64_t overflows; /* finite elements that the type made infinite; export_move counts them */
} export_item;

typedef struct export_file {
    char name[64];   /* in the export's folder */
    size_t first, n; /* items */
    char *head;      /* what comes before the data; NULL: HDF5's business */
    uint64_t head_bytes, bytes;
} export_file;

/* What is exported for one purpose: the model, or the optimizer's state. */
typedef struct export_part {
    const char *stem;      /* "model" */
    size_t first, n;       /* items */
    size_t file, files;    /* files */
    uint64_t bytes, elems; /* of all items as exported */
} export_part;

typedef struct export_plan {
    export_item *items;
    size_t n;
    export_file *files;
    size_t n_files;
    export_part parts[2];
    size_t n_parts;
    uint64_t bytes; /* of all items as exported */
} export_plan;

typedef struct export_settings {
    int hdf5, cast, with_optimizer;
    dcp_dtype dtype;         /* of the model's floating tensors, where `cast` is set */
    uint64_t max_file_bytes; /* a safetensors file is closed before its data would exceed it (one
                                tensor may) */
} export_settings;

/* All of /model but for `left_out` (a path, or NULL), and of /optimizer where asked for. */
int export_plan_make(const dcp_checkpoint *ckpt, const export_settings *settings,
                     const char *left_out, export_plan *out);
void export_plan_free(export_plan *plan);

/* The path of a copy of the embedding that transformers makes by itself, since the configuration
 * ties the two; NULL: there is none. Collective. */
int export_tied_copy(const launch *job, dcp_checkpoint *ckpt, const char **out);

/* Takes bytes [offset, offset + bytes) of a tensor as exported. */
typedef int (*export_sink)(void *ctx, uint64_t offset, const void *data, uint64_t bytes);
/* Reads, converts and hands over a tensor in pieces of a few MiB: those that begin with a byte of
 * [begin, end), as stored. *overflows, where it is not NULL, grows by the finite elements that
 * became infinite. */
int export_stream(dcp_checkpoint *ckpt, const char *source, dcp_dtype as, uint64_t begin,
                  uint64_t end, uint64_t *overflows, export_sink sink, void *ctx);

/* What moves, for the progress bar. */
typedef struct export_meter {
    void (*update)(void *ctx, uint64_t bytes);
    void *ctx;
} export_meter;

/* Moves this rank's share of the plan's data into the files in `dir`, which are there with their
 * full length, and makes it durable. Counts this rank's overflows. */
int export_move(const launch *job, dcp_checkpoint *ckpt, export_plan *plan, const char *dir,
                const export_meter *meter);
/* Collective: says how many elements became infinite, and in which tensors. */
int export_tell_overflows(const launch *job, const export_plan *plan);
/* Creates a file with `head`, of `bytes` bytes altogether, the room reserved. */
int export_reserve(const char *path, const void *head, uint64_t head_bytes, uint64_t bytes);

/* Rank 0: everything in the empty folder `dir` but the tensors' data: files with their headers,
 * index, config.json, what /files holds. */
int export_folder(dcp_checkpoint *ckpt, const export_plan *plan, const char *dir);
/* Rank 0: one plain HDF5 file of all tensors in `dir`, without data, and the configuration as its
 * attribute `config`. Sets the items' offsets. */
int export_hdf5(const dcp_checkpoint *ckpt, export_plan *plan, const char *dir);
/* Whether the file is one that export_hdf5 may have made: HDF5 with that attribute. */
int export_hdf5_is_ours(const char *path);

/* The model's configuration in the checkpoint; NULL: it has none. The caller's. */
json_t *export_config_stored(const dcp_checkpoint *ckpt);
/* The same with what transformers needs to load it. */
json_t *export_config_make(const dcp_checkpoint *ckpt, const export_plan *plan);
/* config.json from it; a note where the checkpoint has none. */
int export_config(const dcp_checkpoint *ckpt, const export_plan *plan, const char *dir);

#endif
