/* An open checkpoint: its files and tensors, and how files' tables become one. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "comm/comm.h"
#include "dcp/checkpoint.h"
#include "format/tables.h"

/* An open checkpoint: its files, and its tensors with the datasets that hold them.
 *
 * Each rank knows all files, and all tensors by name, type and shape. Which rows of the files'
 * tables it has depends on how the checkpoint was opened (`rows`):
 *
 *   READER_ROWS_HERE       all, with their files' tables: layout global, and a check of every byte
 *   READER_ROWS_AT_HOMES   of shards: those of the tensors whose home it is, tensor number i being
 * at home on rank i modulo the world size; others are asked for (view.h) READER_ROWS_COPIED     as
 * at homes, but each rank has a copy of all of them */

/* A dataset that holds a box of a tensor. */
typedef struct reader_dataset {
    format_file *file;
    const format_row *row;
    const uint64_t *crcs;  /* of its blocks; NULL: not read yet (view.h) */
    uint64_t first_block;  /* blocks of the tensor's datasets before it */
    uint64_t known_blocks; /* of those before it in the list that it is in */
} reader_dataset;

/* Datasets of a tensor, all or those near some boxes, ascending by their starts on its dimension
 * `sweep`. */
typedef struct reader_known {
    reader_dataset *datasets; /* NULL: of a view, and not opened (view.h) */
    size_t n;
    uint64_t blocks;      /* of them all */
    const uint64_t *rows; /* of a view: theirs, one after the other, packed; else NULL */
} reader_known;

typedef struct reader_tensor {
    dcp_tensor tensor;
    uint64_t bytes;
    size_t n_datasets;
    reader_dataset *datasets;    /* all of them; NULL: not here, or not yet (view.h) */
    const uint64_t *const *rows; /* theirs, packed (packed.h), in that order; NULL: not here */
    uint32_t sweep;
    uint64_t longest; /* dataset on that dimension */
    uint64_t blocks;  /* of all datasets */
    /* Where rows are at homes: */
    uint64_t crc;    /* of the tensor, where is_runs (tensor_checksum.h) */
    uint64_t digest; /* of all rows */
    int is_runs;
} reader_tensor;

/* A box of a tensor that a rank wants to read (view.h). */
typedef struct reader_want {
    const reader_tensor *tensor;
    const dcp_box *box;
} reader_want;

/* The datasets that share elements with some boxes. */
typedef struct reader_view {
    reader_known *of; /* each tensor's, by its number */
    size_t n;         /* tensors */
    uint64_t *packed;
} reader_view;

/* The block of a dataset that was read last. */
typedef struct reader_block_cache {
    unsigned char *data;
    const format_row *row; /* NULL: none */
    uint64_t number;
} reader_block_cache;

/* Such a cache, of the thread that read by it last. */
typedef struct reader_lent_cache {
    reader_block_cache cache;
    pthread_t reader;
    atomic_int in_use;
    struct reader_lent_cache *after;
} reader_lent_cache;

/* What uses the checkpoint beside the caller's own calls: a struct that begins with this one. */
typedef struct reader_user {
    void (*settle)(struct reader_user *user); /* waits for its end */
} reader_user;

typedef enum reader_rows { READER_ROWS_HERE, READER_ROWS_AT_HOMES, READER_ROWS_COPIED } reader_rows;

struct dcp_checkpoint {
    dcp_comm *comm;    /* borrowed */
    reader_user *user; /* a load in flight; NULL: none */
    char *path;
    struct format_hold *hold; /* of the folder of that path; NULL: this rank could not open it */
    int gone;                 /* the folder was found, but had lost its name when it was opened */
    uint64_t step;
    dcp_layout layout;
    char *json;
    format_file *files, **by_address;
    size_t n_files;
    int scattered;           /* some file is hidden from some rank */
    uint64_t *reader_ranges; /* of the readers, where it is scattered */
    reader_tensor *tensors;
    char *tensor_paths;
    size_t n_tensors;
    reader_rows rows;
    reader_dataset *datasets; /* of READER_ROWS_HERE, by tensor */
    uint64_t *packed;         /* the rows that are here, packed */
    const uint64_t **in_order;
    int copies_rows;             /* if it is scattered, its rows are to be copied */
    struct reader_memory *found; /* when it was asked for (view.c) */
    uint64_t blocks;             /* of all files; of READER_ROWS_HERE */
    uint64_t address_end;
    char state_id[17];         /* layout sharded */
    atomic_flag lending;       /* of the caches that are lent to dcp_checkpoint_read (read.c) */
    reader_lent_cache *caches; /* those used last at its beginning */
    size_t n_caches;
};

/* Gives the checkpoint n files, none of them open. */
int reader_checkpoint_make_files(dcp_checkpoint *ckpt, size_t n, dcp_error *err);

/* Waits for the load in flight, if there is one. */
void reader_checkpoint_settle(dcp_checkpoint *ckpt);

/* On this rank what was found has lost its name since, or is about to, so that it was no step of
 * the directory any more by the time that it was held. */
int reader_checkpoint_is_gone(const dcp_checkpoint *ckpt);

const reader_tensor *reader_checkpoint_lookup(const dcp_checkpoint *ckpt, const char *path);

/* The rank where the tensor's rows are at home. */
static inline int reader_checkpoint_home(const dcp_checkpoint *ckpt, size_t tensor) {
    return (int)(tensor % (size_t)ckpt->comm->size);
}

/* Whether all ranks hold the same of a checkpoint: its tensors and its meta. What they have read of
 * different files they compare by checksums, and files can be made to have any of those. */

/* What one rank tells all others: a key that nobody knew before, and the sum under it. */
enum { READER_ALIKE_KEY, READER_ALIKE_SUM, READER_ALIKE_WORDS };

int reader_alike_tell(const dcp_checkpoint *ckpt, uint64_t told[READER_ALIKE_WORDS],
                      dcp_error *err);

/* DCP_ERR_CORRUPT: this rank holds something else than the one that told. */
int reader_alike_check(const dcp_checkpoint *ckpt, const uint64_t told[READER_ALIKE_WORDS],
                       dcp_error *err);

/* Files' tables become a checkpoint: addresses, metas, and the datasets of each tensor. */

/* Joins the files' rows, which are all here, into tensors; checks that shards belong together and
 * cover every tensor. */
int reader_join_files(dcp_checkpoint *ckpt, dcp_error *err);

/* Gives the files, of which the user blocks are known, their addresses. */
int reader_join_place(dcp_checkpoint *ckpt, dcp_error *err);

/* Reads the metas of the files that have a path: they are of one state, and of the folder's step.
 */
int reader_join_metas(dcp_checkpoint *ckpt, dcp_error *err);
/* The first file's meta: fills ckpt->json, state_id and step. The others' agree with it. */
int reader_join_first_meta(dcp_checkpoint *ckpt, size_t first, dcp_error *err);
int reader_join_check_meta(dcp_checkpoint *ckpt, size_t first, size_t number, dcp_error *err);

/* DCP_ERR_CORRUPT: that of file `number` is of another state than that of file `first`. */
int reader_join_fail_meta(const dcp_checkpoint *ckpt, size_t first, size_t number, dcp_error *err);

/* DCP_ERR_CORRUPT: it is of the other layout. */
int reader_join_check_layout(const dcp_checkpoint *ckpt, const format_file *file, dcp_error *err);

/* Both DCP_ERR_CORRUPT, naming the tensor. */
int reader_join_fail_shape(const dcp_checkpoint *ckpt, const char *tensor, dcp_error *err);
int reader_join_fail_cover(const dcp_checkpoint *ckpt, const char *tensor, dcp_error *err);

/* Of `known`, in the order of the tensor's datasets, [*first, *end) are all that can share elements
 * with the box. */
void reader_join_near(const reader_tensor *t, const reader_known *known, const dcp_box *box,
                      size_t *first, size_t *end);
