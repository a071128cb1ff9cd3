/* An open checkpoint, and joining the tables of its files. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "comm/comm.h"
#include "dcp/checkpoint.h"
#include "format/tables.h"

/* An open checkpoint: its files, and its tensors with the datasets that hold them.
 *
 * Each rank knows all files, and the name, type and shape of all tensors. How the checkpoint was
 * opened determines which rows of the files' tables a rank has (member `rows`):
 *
 *   READER_ROWS_HERE      all rows, and the tables of their files: used for layout global, and to
 *                         check every byte
 *   READER_ROWS_AT_HOMES  for shards: the rows of the tensors whose home is this rank. The home of
 *                         tensor i is rank i modulo the world size. Other rows are requested from
 *                         their homes (view.h)
 *   READER_ROWS_COPIED    as READER_ROWS_AT_HOMES, but each rank also has a copy of all rows */

/* A dataset that holds a box of a tensor. */
typedef struct reader_dataset {
    format_file *file;
    const format_row *row;
    const uint64_t *crcs;  /* checksums of its blocks; NULL: not read yet (view.h) */
    uint64_t first_block;  /* number of blocks in the tensor's preceding datasets */
    uint64_t known_blocks; /* number of blocks in the datasets before it in its reader_datasets */
} reader_dataset;

/* Datasets of one tensor, either all of them or only the ones near some boxes, sorted by their
 * starts on the tensor's dimension `sweep`. */
typedef struct reader_datasets {
    reader_dataset *datasets; /* NULL: a view's datasets that are not open (view.h) */
    size_t n;
    uint64_t blocks;      /* total of all datasets */
    const uint64_t *rows; /* in a view: the packed rows, one after the other; else NULL */
} reader_datasets;

typedef struct reader_tensor {
    dcp_tensor tensor;
    uint64_t bytes;
    size_t n_datasets;
    reader_dataset *datasets;    /* all of them; NULL: none or not yet on this rank (view.h) */
    const uint64_t *const *rows; /* their packed rows (packed.h), in the same order; or NULL */
    uint32_t sweep;
    uint64_t longest; /* length of the longest dataset on dimension `sweep` */
    uint64_t blocks;  /* in all datasets */
    /* If rows are at homes: */
    uint64_t crc;    /* the tensor's checksum if is_runs (packed.h) */
    uint64_t digest; /* checksum of all rows */
    bool is_runs;
} reader_tensor;

/* A box of a tensor that a rank is going to read (view.h). */
typedef struct reader_request {
    const reader_tensor *tensor;
    const dcp_box *box;
} reader_request;

/* The datasets that share elements with some boxes. */
typedef struct reader_view {
    reader_datasets *of; /* for each tensor, indexed by its number */
    size_t n;            /* number of tensors */
    uint64_t *packed;
} reader_view;

/* The most recently read block, and the row of its dataset. */
typedef struct reader_block_cache {
    unsigned char *data;
    const format_row *row; /* NULL: the cache is empty */
    uint64_t number;
} reader_block_cache;

/* A block cache, and the thread that used it last. */
typedef struct reader_thread_cache {
    reader_block_cache cache;
    pthread_t reader;
    atomic_int in_use;
    struct reader_thread_cache *after;
} reader_thread_cache;

/* The base of structs that describe a background use of the checkpoint. */
typedef struct reader_user {
    void (*wait)(struct reader_user *user); /* waits until the use has ended */
} reader_user;

typedef enum reader_rows { READER_ROWS_HERE, READER_ROWS_AT_HOMES, READER_ROWS_COPIED } reader_rows;

struct dcp_checkpoint {
    dcp_comm *comm;    /* borrowed */
    reader_user *user; /* a load in flight; NULL: no load */
    char *path;
    struct format_hold *hold; /* holds the folder at `path`; NULL: this rank could not open it */
    /* the folder was found, but had lost its name when this rank opened it */
    bool gone;
    uint64_t step;
    dcp_layout layout;
    char *json;
    format_file *files, **by_address;
    size_t n_files;
    bool scattered;          /* at least one rank does not see at least one file */
    uint64_t *reader_ranges; /* the ranks' reader ranges if `scattered` */
    reader_tensor *tensors;
    char *tensor_paths;
    size_t n_tensors;
    reader_rows rows;
    reader_dataset *datasets; /* sorted by tensor; READER_ROWS_HERE only */
    uint64_t *packed;         /* this rank's rows, packed */
    const uint64_t **in_order;
    bool copies_rows;            /* if `scattered`, copy the rows to all ranks */
    struct reader_memory *found; /* results of look-ups (view.c) */
    uint64_t blocks;             /* in all files; READER_ROWS_HERE only */
    uint64_t address_end;
    char state_id[17];           /* layout sharded only */
    atomic_flag lending;         /* guards the caches that dcp_checkpoint_read uses (read.c) */
    reader_thread_cache *caches; /* most recently used first */
    size_t n_caches;
};

/* Makes the array of n files, none of them open. */
int reader_checkpoint_make_files(dcp_checkpoint *ckpt, size_t n, dcp_error *err);

/* Waits for the load in flight, if any. */
void reader_checkpoint_wait(dcp_checkpoint *ckpt);

/* Returns true if the folder that this rank found is no longer a step of the directory: it has lost
 * its name, or a writer has begun to remove it. */
bool reader_checkpoint_is_gone(const dcp_checkpoint *ckpt);

const reader_tensor *reader_checkpoint_lookup(const dcp_checkpoint *ckpt, const char *path);

/* Returns the tensor's home. */
static inline int reader_checkpoint_home(const dcp_checkpoint *ckpt, size_t tensor) {
    return (int)(tensor % (size_t)ckpt->comm->size);
}

/* Functions that check that all ranks have the same tensors and the same meta. Comparing the
 * checksums of what each rank has read is not enough, since files can be forged to have any
 * checksums. The sum used here depends on a random key. */

/* The words that one rank sends to all others: a random key, and the sum of its tensors and meta
 * under this key. */
enum { READER_DIGEST_KEY, READER_DIGEST_SUM, READER_DIGEST_WORDS };

int reader_digest_make(const dcp_checkpoint *ckpt, uint64_t digest[READER_DIGEST_WORDS],
                       dcp_error *err);

/* Returns DCP_ERR_CORRUPT if this rank's tensors or meta differ from the sender's. */
int reader_digest_check(const dcp_checkpoint *ckpt, const uint64_t digest[READER_DIGEST_WORDS],
                        dcp_error *err);

/* Joining the tables of several files: addresses, metas, and the datasets of each tensor. */

/* Joins the rows of all files into tensors; this rank must have all rows. Checks that the shards
 * belong together and cover every tensor. */
int reader_join_files(dcp_checkpoint *ckpt, dcp_error *err);

/* Assigns addresses to the files. Their user blocks must be known. */
int reader_join_assign_addresses(dcp_checkpoint *ckpt, dcp_error *err);

/* Reads the meta of each file that has a path. Checks that all of them belong to one state, and to
 * the step that the folder's name gives. */
int reader_join_metas(dcp_checkpoint *ckpt, dcp_error *err);
/* reader_join_first_meta reads the first file's meta into ckpt->json, state_id and step;
 * reader_join_check_meta checks that the meta of file `number` agrees with it. */
int reader_join_first_meta(dcp_checkpoint *ckpt, size_t first, dcp_error *err);
int reader_join_check_meta(dcp_checkpoint *ckpt, size_t first, size_t number, dcp_error *err);

/* Fails with DCP_ERR_CORRUPT: the metas of files `number` and `first` belong to different
 * states. */
int reader_join_fail_meta(const dcp_checkpoint *ckpt, size_t first, size_t number, dcp_error *err);

/* Returns DCP_ERR_CORRUPT if the file has the other layout. */
int reader_join_check_layout(const dcp_checkpoint *ckpt, const format_file *file, dcp_error *err);

/* These two functions fail with DCP_ERR_CORRUPT; the message names the tensor. */
int reader_join_fail_shape(const dcp_checkpoint *ckpt, const char *tensor, dcp_error *err);
int reader_join_fail_cover(const dcp_checkpoint *ckpt, const char *tensor, dcp_error *err);

/* Finds the datasets that can share elements with the box: elements [*first, *end) of
 * known->datasets, which are sorted like the tensor's datasets. */
void reader_join_near(const reader_tensor *t, const reader_datasets *known, const dcp_box *box,
                      size_t *first, size_t *end);
