/* dcp-export in parts: what goes out, and the two forms in which it does. */
#ifndef RESHARD_EXPORT_H
#define RESHARD_EXPORT_H

#include <jansson.h>

#include <stddef.h>

#include "dcp/checkpoint.h"
#include "launch.h"

typedef struct export_item {
    const char *source; /* path in the checkpoint; valid until its close */
    dcp_dtype stored;
    dcp_tensor tensor; /* as it is exported: without the section, in the type asked for */
    size_t file;       /* which safetensors file it goes to */
} export_item;

typedef struct export_plan {
    export_item *items; /* ascending by name */
    size_t n;
    uint64_t bytes; /* of all items as exported */
    size_t files;   /* safetensors files */
} export_plan;

/* All of /model; a floating tensor becomes `to` where `cast` is set. A file is closed before it
 * would hold more than max_file_bytes (one tensor may). Functions return exit statuses. */
int export_plan_make(dcp_checkpoint *ckpt, int cast, dcp_dtype to, uint64_t max_file_bytes,
                     export_plan *out);
void export_plan_free(export_plan *plan);

/* "model.safetensors", or "model-00001-of-00003.safetensors", into name[64]. */
const char *export_file_name(const export_plan *plan, size_t file, char *name);

/* Takes the next elements of a tensor, in row-major order, as exported. */
typedef int (*export_sink)(void *ctx, const dcp_box *piece, const void *data, uint64_t bytes);
/* Reads, converts and hands over one tensor in pieces of a few MiB. */
int export_stream(dcp_checkpoint *ckpt, const char *source, const dcp_tensor *as, export_sink sink,
                  void *ctx);

/* What moves, for the progress bar. */
typedef struct export_meter {
    void (*update)(void *ctx, uint64_t bytes);
    void *ctx;
} export_meter;

/* Fills the empty folder `dir`: tensors, index, config.json, /files. Collective: ranks take files
 * in turn. */
int export_folder(const launch *job, dcp_checkpoint *ckpt, const export_plan *plan, const char *dir,
                  const export_meter *meter);

/* The model's configuration in the checkpoint, with what transformers needs to load it; NULL: the
 * checkpoint has none. */
json_t *export_config_make(dcp_checkpoint *ckpt, const export_plan *plan);
/* config.json from it; a note where the checkpoint has none. */
int export_config(dcp_checkpoint *ckpt, const export_plan *plan, const char *dir);

/* Writes all tensors to one plain HDF5 file `path`, the configuration as its attribute `config`.
 * One rank. */
int export_hdf5(dcp_checkpoint *ckpt, const export_plan *plan, const char *path,
                const export_meter *meter);

#endif
