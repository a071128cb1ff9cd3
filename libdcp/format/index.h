/* The user block of a checkpoint's file and the index table that it points to. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "core/bytes.h"
#include "dcp/error.h"
#include "dcp/layout.h"
#include "dcp/tensor.h"

/* The first 4,096 bytes of a checkpoint's file: where its tables are, and the checksums of all that
 * is not tensor data. docs/format.md has the byte offsets. */

#define USERBLOCK_BYTES 4096
#define FORMAT_VERSION 1
#define BLOCK_BYTES (4u << 20) /* what one entry of /dcp/blocks covers at most */

/* Limits of one file, far beyond what a real one needs, so that a false number can't make a reader
 * allocate much memory. A writer refuses what a reader would. */
#define MAX_ROWS (1u << 24)
#define MAX_FILE_BYTES (1ULL << 48)
#define MOST_REST (64ULL << 20)                      /* neither of a dataset nor of a table */
#define MOST_ROW_REST (1ULL << 20)                   /* more of it, for each row */
#define MAX_STEP_BYTES (1ULL << 50)                  /* of all files of a step */
#define MAX_JSON_BYTES (16u << 20)                   /* of the JSON text */
#define MAX_META_BYTES (MAX_JSON_BYTES + (1u << 17)) /* with a shard's member and padding */

typedef struct format_range {
    uint64_t offset, bytes;
    uint64_t crc;
} format_range;

typedef struct format_userblock {
    dcp_layout layout;
    uint64_t file_bytes;
    uint64_t rows;      /* of the index */
    uint64_t row_bytes; /* one row of it */
    format_range index, blocks, meta;
    uint64_t outside_crc; /* of all bytes that are neither user block nor tensor data, in order */
} format_userblock;

void format_userblock_encode(const format_userblock *ub, unsigned char *out /* USERBLOCK_BYTES */);

/* Checks magic, checksum, version and that every range lies in the file of `file_bytes` bytes. */
int format_userblock_decode(const unsigned char *in, uint64_t file_bytes, const char *path,
                            format_userblock *out, dcp_error *err);

/* The index table (/dcp/index): a row a dataset. In layout global a dataset is a whole tensor; in a
 * shard's file it is one box of a tensor, and rows have start and count as well. */

struct box_copy;

#define FORMAT_LONGEST_PATH (DCP_MAX_PATH + 16) /* in a table: with its NUL, rounded up to 16 */
#define FORMAT_LONGEST_ROW (FORMAT_LONGEST_PATH + 8 + 4 + 8 * DCP_MAX_DIMS + 24 + 16 * DCP_MAX_DIMS)

typedef struct format_row {
    dcp_tensor tensor;  /* global shape; path: the dataset's, "/model/x" or "/model/x@1" */
    const dcp_box *box; /* what of the tensor the dataset holds; NULL: all of it */
    uint64_t offset;    /* of its bytes from the file's start; 0 where there are none */
    uint64_t bytes;
    uint64_t crc;
    uint64_t first_block; /* its place in the blocks table: the blocks of all rows before it */
} format_row;

static inline dcp_box format_index_row_box(const format_row *row) {
    return row->box ? *row->box : dcp_box_whole(&row->tensor);
}

/* How the elements that the row's dataset shares with a box of its tensor lie in the dataset (a)
 * and in the box, dense (b). 0: it shares none. */
int format_index_shared(const format_row *row, const dcp_box *box, struct box_copy *out);

/* The longest path (with its NUL) rounded up to 16. */
uint64_t format_index_path_bytes(const format_row *rows, size_t n);
uint64_t format_index_row_bytes(uint64_t path_bytes, dcp_layout layout);
void format_index_encode(const format_row *rows, size_t n, uint64_t path_bytes, dcp_layout layout,
                         unsigned char *out);

/* Decodes and checks a table: names, types, shapes, sizes, order, that datasets lie in the file
 * without overlapping, that they need blocks_bytes of block checksums, and that format_index_encode
 * would give the same bytes. *out is one allocation (rows, their boxes and paths), freed with
 * free(). `file` is the file's path, for messages. Where `checked`, another rank checks the same
 * bytes, and the rows are not to be used before it found them right. */
int format_index_decode(const unsigned char *table, const format_userblock *ub, const char *file,
                        int checked, format_row **out, dcp_error *err);

/* One row by itself, of a file that was found right before: into *out, its path and its box, which
 * it borrows. DCP_ERR_CORRUPT. */
int format_index_decode_row(const unsigned char *row, const format_userblock *ub, const char *file,
                            char *path, dcp_box *box, format_row *out, dcp_error *err);
/* Bytes of the dataset of a row that is encoded. */
uint64_t format_index_bytes_of(const unsigned char *row, const format_userblock *ub);

/* Checks rows [first, end) by themselves; those before `first` were checked before. For a large
 * table, which is read step by step: a false number of rows shows at its first false row. */
int format_index_check_rows(const unsigned char *table, uint64_t first, uint64_t end,
                            const format_userblock *ub, const char *file, dcp_error *err);

/* The rows that have bytes, ascending by offset; the array is malloc'd. */
int format_index_sort(const format_row *rows, size_t n, const format_row ***out, size_t *n_out,
                      dcp_error *err);

/* Blocks of 4 MiB, the last one shorter, that a dataset of that size has. */
static inline uint64_t format_index_blocks(uint64_t bytes) {
    return bytes / BLOCK_BYTES + (bytes % BLOCK_BYTES != 0);
}

/* Bytes in block `b` of a dataset. */
static inline uint64_t format_index_block_bytes(uint64_t bytes, uint64_t b) {
    uint64_t left = bytes - b * BLOCK_BYTES;
    return left < BLOCK_BYTES ? left : BLOCK_BYTES;
}

/* The checksum of a dataset from its blocks', and from their raw forms. */
uint64_t format_index_join_blocks(const uint64_t *crcs, uint64_t bytes);
uint64_t format_index_join_sums(const uint64_t *sums, uint64_t bytes);

/* Continues the state id (raw ~0 at first, inverted at the end) with a tensor: path, dtype, shape,
 * checksum. */
uint64_t format_index_state_id(uint64_t raw, const dcp_tensor *tensor, uint64_t crc);

/* Length of the tensor's path in a dataset's: without the "@<digits>" of a further box of the
 * tensor. */
size_t format_index_tensor_path(const char *dataset_path);
