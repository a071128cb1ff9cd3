/* Looking into checkpoints, for tools: what a step's folder tells at a glance, where the pieces of
 * a tensor lie, fingerprints, and reads by several threads at once. */
#ifndef DCP_INSPECT_H
#define DCP_INSPECT_H

#include <stddef.h>

#include "dcp/checkpoint.h"
#include "dcp/size.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What names, sizes and user blocks say of a step, without its tables. */
typedef struct dcp_glance {
    size_t size; /* dcp/size.h */
    dcp_layout layout;
    int files;        /* that the step has: 1, or the number of shards */
    int files_here;   /* of them in this folder: fewer in a private store's (dcp/store.h) */
    uint64_t bytes;   /* of the files that are here */
    uint64_t tensors; /* of layout global; of shards what about.json says, 0 where it doesn't */
    int ranks;        /* that wrote the step, from about.json; 0: not known */
    int64_t written; /* seconds since 1970, from about.json, or of the newest file; -1: not known */
    int survives;    /* losses of failure domains, from about.json (dcp_store_survives); -1: it says
                        none, as of a shared store's step */
    int domains;     /* that the ranks were in; 0: not known */
    int has_names;   /* these were named by the caller; 0: they are hosts */
} dcp_glance;
#define DCP_GLANCE_INIT DCP_SIZED(dcp_glance)

/* Looks at a step's folder, whatever its name. Reads 4 KiB of each of its files, and about.json:
 * some 50 us. Not collective. *out is filled as far as things are known, on failure, too.
 * DCP_ERR_CORRUPT: a file is missing, has another size than its user block says, or another layout
 * than its name, or the user block's or about.json's checksum is wrong. Tables and tensors are
 * dcp_verify's. DCP_ERR_VERSION: written by a newer format. DCP_ERR_NOT_FOUND: no such folder. */
DCP_API int dcp_step_glance(const char *step_path, dcp_glance *out, dcp_error *err);

/* One dataset of a file: a box of a tensor, dense, with the checksums that the tables have. */
typedef struct dcp_piece {
    size_t size; /* dcp/size.h */
    dcp_box box;
    int file; /* the shard's number; 0 of layout global */
    uint64_t bytes;
    uint64_t crc;               /* CRC-64 of all of it */
    const uint64_t *block_crcs; /* of each 4 MiB of it; valid until the checkpoint's close */
} dcp_piece;
#define DCP_PIECE_INIT DCP_SIZED(dcp_piece)

/* How many pieces tensor i has: one of layout global, in shards those of all files; none where the
 * tensor has no elements. */
DCP_API size_t dcp_checkpoint_pieces(const dcp_checkpoint *ckpt, size_t i);
/* Piece k of tensor i. DCP_ERR_ARG: there is none. As dcp_checkpoint_box it may read tables the
 * first time, and then fails as a read of a file does. */
DCP_API int dcp_checkpoint_piece(const dcp_checkpoint *ckpt, size_t i, size_t k, dcp_piece *out);

/* The CRC-64 of tensor i's bytes, as the tables have it: nothing is read. In shards it is joined
 * from the pieces'. DCP_ERR_UNSUPPORTED: a piece is no run of the tensor's bytes, as where it is
 * cut on another dimension than its first; then the pieces' checksums don't tell. */
DCP_API int dcp_checkpoint_crc(const dcp_checkpoint *ckpt, size_t i, uint64_t *crc, dcp_error *err);

/* The state id: one number for all tensors' paths, types, shapes and checksums (docs/format.md), of
 * shards as their writer stored it. 1 and *id, or 0 where there is none. */
DCP_API int dcp_checkpoint_state_id(const dcp_checkpoint *ckpt, uint64_t *id);

/* Bytes of all files: tensors, tables, HDF5's metadata and padding. */
DCP_API uint64_t dcp_checkpoint_file_bytes(const dcp_checkpoint *ckpt);

/* Reads along several tensors at once, by any thread: a reader keeps the block of 4 MiB that it
 * read last, as dcp_checkpoint_read does for each thread. One reader is used by one thread at a
 * time. */
typedef struct dcp_reader dcp_reader;

/* `ckpt` is borrowed until the reader is destroyed, and may be used beside it. */
DCP_API int dcp_reader_create(dcp_checkpoint *ckpt, dcp_reader **out, dcp_error *err);
DCP_API void dcp_reader_destroy(dcp_reader *reader); /* NULL is ignored */

/* As dcp_checkpoint_read. */
DCP_API int dcp_reader_read(dcp_reader *reader, const char *path, const dcp_box *box, void *data,
                            dcp_error *err);

#ifdef __cplusplus
}
#endif
#endif
