/* Inspection of checkpoints, for tools: a quick look at a step's folder, the places of a tensor's
 * pieces, checksums, and reads by several threads. None of these functions is collective. */
#ifndef DCP_INSPECT_H
#define DCP_INSPECT_H

#include <stddef.h>

#include "dcp/checkpoint.h"
#include "dcp/size.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A summary of a step from file names, file sizes, user blocks and about.json, without its
 * tables. */
typedef struct dcp_glance {
    size_t size; /* dcp/size.h */
    dcp_layout layout;
    int files;        /* files of the step: 1, or the number of shards */
    int files_here;   /* files of the step in this folder; fewer for a private store's step
                         (dcp/store.h) */
    uint64_t bytes;   /* bytes of the files in this folder */
    uint64_t tensors; /* number of tensors, for shards from about.json; 0: not known */
    int ranks;        /* ranks that wrote the step, from about.json; 0: not known */
    int64_t written; /* seconds since 1970, from about.json, or the time of the newest file; -1: not
                        known */
    int survives;    /* how many lost failure domains the step survives, from about.json
                        (dcp_store_survives); -1: not stated, as for a shared store's step */
    int domains;     /* number of failure domains of the ranks; 0: not known */
    int has_names;   /* 1: the caller named the failure domains; 0: they are hosts */
} dcp_glance;
#define DCP_GLANCE_INIT DCP_SIZED(dcp_glance)

/* Inspects a step's folder, whatever its name, in some 50 us. It reads 4 KiB of each of the step's
 * files, and about.json; dcp_verify checks tables and tensors. *out is filled as far as the values
 * are known, even on failure.
 * DCP_ERR_CORRUPT: a file is missing, its size differs from the size in its user block, its layout
 * differs from the layout in its name, or the checksum of a user block or of about.json is wrong.
 * DCP_ERR_VERSION: the step was written in a newer format.
 * DCP_ERR_NOT_FOUND: no such folder. */
DCP_API int dcp_step_glance(const char *step_path, dcp_glance *out, dcp_error *err);

/* A piece of a tensor: a box, stored densely as one dataset of a file. The checksums are those in
 * the tables. */
typedef struct dcp_piece {
    size_t size; /* dcp/size.h */
    dcp_box box;
    int file; /* the shard's number; 0 for layout global */
    uint64_t bytes;
    uint64_t crc;               /* CRC-64 of the whole piece */
    const uint64_t *block_crcs; /* CRC-64 of each 4 MiB; valid until the checkpoint closes */
} dcp_piece;
#define DCP_PIECE_INIT DCP_SIZED(dcp_piece)

/* Returns the number of pieces of tensor i: one in layout global, the pieces in all files for
 * shards, and none if the tensor has no elements. */
DCP_API size_t dcp_checkpoint_pieces(const dcp_checkpoint *ckpt, size_t i);
/* Describes piece k of tensor i. Like dcp_checkpoint_box, it may read tables the first time, and
 * fails if this read fails. DCP_ERR_ARG: there is no such piece. */
DCP_API int dcp_checkpoint_piece(const dcp_checkpoint *ckpt, size_t i, size_t k, dcp_piece *out);

/* Sets *crc to the CRC-64 of tensor i's bytes, from the tables, without reading the tensor. For
 * shards it is combined from the checksums of the pieces. DCP_ERR_UNSUPPORTED: a piece is not a
 * contiguous run of the tensor's bytes, as when the tensor is cut on a dimension other than the
 * first; the checksums of the pieces then don't determine the tensor's. */
DCP_API int dcp_checkpoint_crc(const dcp_checkpoint *ckpt, size_t i, uint64_t *crc, dcp_error *err);

/* Sets *id to the state id: one number for all tensors' paths, types, shapes and checksums
 * (docs/format.md); for shards, the number that their writer stored. Returns 1, or 0 if there is
 * none. */
DCP_API int dcp_checkpoint_state_id(const dcp_checkpoint *ckpt, uint64_t *id);

/* Returns the total size of all files in bytes: tensors, tables, HDF5's metadata and padding. */
DCP_API uint64_t dcp_checkpoint_file_bytes(const dcp_checkpoint *ckpt);

/* A reader, for reading several tensors alternately, on any thread. It keeps the block of 4 MiB
 * that it read last, as dcp_checkpoint_read does for each thread. One thread at a time may use a
 * reader. */
typedef struct dcp_reader dcp_reader;

/* Makes a reader. `ckpt` is borrowed until the reader is destroyed, and remains usable. */
DCP_API int dcp_reader_create(dcp_checkpoint *ckpt, dcp_reader **out, dcp_error *err);
DCP_API void dcp_reader_destroy(dcp_reader *reader); /* NULL is ignored */

/* Like dcp_checkpoint_read, through this reader. */
DCP_API int dcp_reader_read(dcp_reader *reader, const char *path, const dcp_box *box, void *data,
                            dcp_error *err);

#ifdef __cplusplus
}
#endif
#endif
