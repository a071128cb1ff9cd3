/* An open checkpoint: the tables of its files, and its tensors with the datasets that hold them. */
#ifndef DCP_LOAD_CHECKPOINT_H
#define DCP_LOAD_CHECKPOINT_H

#include "comm/comm.h"
#include "dcp/checkpoint.h"
#include "io/file.h"
#include "step/index.h"

/* Files lie one after the other in one space of addresses, so that a load sees one file: in their
 * order, or, where some are hidden from some ranks, ordered by their readers, so that each reader
 * has a lane (copy/window.h). */
typedef struct ckpt_file {
    char *path; /* of a hidden one: as its reader sees it */
    int reader; /* the rank that reads its tables, and its data for ranks that can't */
    int hidden; /* this rank doesn't see it */
    userblock ub;
    index_row *rows;
    uint64_t *crcs;        /* of blocks, all rows' */
    char *meta;            /* JSON text without its padding */
    uint64_t base;         /* its first byte's address */
    uint64_t first_block;  /* of all files' blocks */
    io_file file;          /* for dcp_load; fd -1 until it is needed */
    int plain;             /* descriptor for reads through the page cache; -1 likewise */
    int outside_is_intact; /* outside_check found it so */
} ckpt_file;

/* A dataset that holds a box of a tensor. */
typedef struct ckpt_piece {
    ckpt_file *file;
    const index_row *row;
    uint64_t first_block; /* blocks of the tensor's pieces before it */
} ckpt_piece;

typedef struct ckpt_tensor {
    dcp_tensor tensor;
    uint64_t bytes;
    size_t first_piece, n_pieces; /* ascending by their starts on dimension `sweep` */
    uint32_t sweep;
    uint64_t longest; /* piece on that dimension */
    uint64_t blocks;  /* of all pieces */
} ckpt_tensor;

/* The block of a dataset that was read last. */
typedef struct block_cache {
    unsigned char *data;
    const index_row *row; /* NULL: none */
    uint64_t number;
} block_cache;

struct dcp_checkpoint {
    dcp_comm *comm; /* borrowed */
    char *path;
    uint64_t step;
    dcp_layout layout;
    char *json;
    ckpt_file *files, **by_address;
    size_t n_files;
    int scattered;   /* some file is hidden from some rank */
    uint64_t *lanes; /* of the readers, where it is scattered */
    ckpt_tensor *tensors;
    char *tensor_paths;
    size_t n_tensors;
    ckpt_piece *pieces; /* by tensor */
    uint64_t blocks;    /* of all files */
    uint64_t address_end;
    char state_id[17]; /* layout sharded */
    block_cache cache; /* of the calls below that read blocks */
};

/* Reads and checks user block, index, blocks and meta of file->path. */
int tables_read(ckpt_file *file, dcp_error *err);
/* The same from what tables_pack put together; `checked`: as step_index_decode has it. */
int tables_unpack(ckpt_file *file, const unsigned char *packed, uint64_t bytes, int checked,
                  dcp_error *err);
/* Reads the bytes that tables_unpack takes: user block, index, blocks, meta. */
int tables_pack(const char *path, unsigned char **packed, uint64_t *bytes, dcp_error *err);
void tables_free(ckpt_file *file);

/* Layout and number of files of a step's folder. DCP_ERR_CORRUPT: one is missing. */
int step_files(const char *folder, size_t *n, dcp_layout *layout, dcp_error *err);

/* 1 where the folder is named as a step is, whatever state it is in, with the step of that name. */
int step_of_folder(const char *path, uint64_t *step);

/* The path of file i of n, malloc'd; NULL: out of memory. */
char *step_file_path(const char *folder, dcp_layout layout, size_t i, size_t n);

/* The largest number of shards, but less than `below`, of which the folder has some; 0: none. */
int step_world(const char *folder, int below, int *world, dcp_error *err);

/* Numbers of the shards of `world` that the folder has; *n of them, ascending, malloc'd. */
int step_shards(const char *folder, int world, int **out, size_t *n, dcp_error *err);

/* Calls fn with each entry of the folder that is no part of a step of so many files. */
void step_surplus(const char *folder, dcp_layout layout, size_t files,
                  void (*fn)(void *ctx, const char *name), void *ctx);

/* Collective. Finds the step that dcp_checkpoint_open_private means, who sees which file of it, and
 * fills path, layout and files. */
int sight_find(dcp_checkpoint *ckpt, const char *own_path, dcp_error *err);

/* Joins the files' rows into tensors; checks that shards belong together and cover every tensor. */
int checkpoint_join(dcp_checkpoint *ckpt, dcp_error *err);

/* Reads and checks one block of a dataset, into ckpt->cache. */
int checkpoint_block(dcp_checkpoint *ckpt, const ckpt_piece *p, uint64_t number, dcp_error *err);
/* Bytes [offset, offset + bytes) of a dataset, out of such blocks. */
int checkpoint_bytes(dcp_checkpoint *ckpt, const ckpt_piece *p, uint64_t offset, uint64_t bytes,
                     unsigned char *out, dcp_error *err);

/* Reads the metas of the files that have a path: they are of one state, and of the folder's step.
 */
int checkpoint_metas(dcp_checkpoint *ckpt, dcp_error *err);

/* The tensor's pieces [*first, *end) are all that can share elements with the box. */
void checkpoint_near(const dcp_checkpoint *ckpt, const ckpt_tensor *t, const dcp_box *box,
                     size_t *first, size_t *end);

const ckpt_tensor *checkpoint_lookup(const dcp_checkpoint *ckpt, const char *path);

typedef void (*outside_progress_fn)(void *ctx, uint64_t bytes);

/* Reads all bytes of the file that are neither user block nor tensor data, through file->plain;
 * *intact: they are what was saved. `buffer` has BLOCK_BYTES; `progress` may be NULL. */
int outside_check(const ckpt_file *file, unsigned char *buffer, outside_progress_fn progress,
                  void *ctx, int *intact, dcp_error *err);

/* Opens file->file or file->plain, if it is not open. DCP_ERR_UNSUPPORTED: it is hidden. The latter
 * may be called by several threads at once. */
int checkpoint_file(ckpt_file *file, dcp_error *err);
int checkpoint_plain(ckpt_file *file, dcp_error *err);

/* *ours: 1 where the user block's checksum of what is outside of tensor data is that of a file
 * that this library, with its HDF5, writes for these rows, checksums and meta. */
int origin_check(const ckpt_file *file, int *ours, dcp_error *err);

#endif
