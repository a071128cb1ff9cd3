/* The user block of a checkpoint's file, and the index table that it points to. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/bytes.h"
#include "dcp/error.h"
#include "dcp/layout.h"
#include "dcp/tensor.h"

/* The first 4,096 bytes of a checkpoint's file: the places of its tables, and checksums of
 * everything that is not tensor data. docs/format.md has the byte offsets. */

#define USERBLOCK_BYTES 4096
#define FORMAT_VERSION 1
#define BLOCK_BYTES (4u << 20) /* the most bytes that an entry of /dcp/blocks covers */

/* Limits for one file, far beyond what real files require, so a false number cannot make a reader
 * allocate much memory. A writer refuses what a reader would refuse. */
#define MAX_ROWS (1u << 24)
#define MAX_FILE_BYTES (1ULL << 48)
#define MOST_REST (64ULL << 20)                      /* bytes that are neither dataset nor table */
#define MOST_ROW_REST (1ULL << 20)                   /* in addition, per row */
#define MAX_STEP_BYTES (1ULL << 50)                  /* all files of a step */
#define MAX_JSON_BYTES (16u << 20)                   /* the JSON text */
#define MAX_META_BYTES (MAX_JSON_BYTES + (1u << 17)) /* plus a shard's member and padding */

typedef struct format_range {
    uint64_t offset, bytes;
    uint64_t crc;
} format_range;

typedef struct format_userblock {
    dcp_layout layout;
    uint64_t file_bytes;
    uint64_t rows;      /* number of rows of the index */
    uint64_t row_bytes; /* size of a row */
    format_range index, blocks, meta;
    /* covers all bytes that are neither user block nor tensor data, in order */
    uint64_t outside_crc;
} format_userblock;

void format_userblock_encode(const format_userblock *ub, unsigned char *out /* USERBLOCK_BYTES */);

/* Checks magic, checksum and version, and that every range lies in the file of `file_bytes`
 * bytes. */
int format_userblock_decode(const unsigned char *in, uint64_t file_bytes, const char *path,
                            format_userblock *out, dcp_error *err);

/* The index table (/dcp/index) has one row per dataset. In layout global a dataset is a whole
 * tensor. In a shard it is one box of a tensor, and its row also has start and count. */

struct box_copy;

#define FORMAT_LONGEST_PATH (DCP_MAX_PATH + 16) /* in a table: with NUL, rounded up to 16 */
#define FORMAT_LONGEST_ROW (FORMAT_LONGEST_PATH + 8 + 4 + 8 * DCP_MAX_DIMS + 24 + 16 * DCP_MAX_DIMS)

typedef struct format_row {
    dcp_tensor tensor;  /* global shape; path of the dataset: "/model/x" or "/model/x@1" */
    const dcp_box *box; /* the part of the tensor that the dataset holds; NULL: all of it */
    uint64_t offset;    /* place of the data in the file; 0 without data */
    uint64_t bytes;
    uint64_t crc;
    uint64_t first_block; /* place in the blocks table: how many blocks all earlier rows have */
} format_row;

static inline dcp_box format_index_row_box(const format_row *row) {
    return row->box ? *row->box : dcp_box_whole(&row->tensor);
}

/* Finds the elements that the row's dataset and a box of its tensor share. *out describes where
 * they lie in the dataset (a) and in the dense box (b). Returns false if they share none. */
bool format_index_shared(const format_row *row, const dcp_box *box, struct box_copy *out);

/* Returns the length of the longest path, with its NUL, rounded up to a multiple of 16. */
uint64_t format_index_path_bytes(const format_row *rows, size_t n);
uint64_t format_index_row_bytes(uint64_t path_bytes, dcp_layout layout);
void format_index_encode(const format_row *rows, size_t n, uint64_t path_bytes, dcp_layout layout,
                         unsigned char *out);

/* Decodes and checks a table: names, types, shapes, sizes, order, that datasets lie in the file
 * without overlapping, that their blocks fill the blocks table, and that format_index_encode would
 * give the same bytes. *out is one allocation (rows, their boxes and paths), freed with free().
 * `file` is the file's path, for messages. If `checked`, another rank checks the same bytes, and
 * the rows must not be used before that check has succeeded. */
int format_index_decode(const unsigned char *table, const format_userblock *ub, const char *file,
                        int checked, format_row **out, dcp_error *err);

/* Decodes and checks one row of a file whose tables have already been found valid. *out borrows
 * `path` and `box`. Returns DCP_ERR_CORRUPT if the row is invalid. */
int format_index_decode_row(const unsigned char *row, const format_userblock *ub, const char *file,
                            char *path, dcp_box *box, format_row *out, dcp_error *err);
/* Returns the size of the dataset of an encoded row. */
uint64_t format_index_bytes_of(const unsigned char *row, const format_userblock *ub);

/* Checks rows [first, end) alone; those before `first` have already been checked. Used for a large
 * table that is read in parts: a false number of rows is then detected at the first invalid row. */
int format_index_check_rows(const unsigned char *table, uint64_t first, uint64_t end,
                            const format_userblock *ub, const char *file, dcp_error *err);

/* Returns the rows that have bytes, sorted by offset, in a malloc'd array. */
int format_index_sort(const format_row *rows, size_t n, const format_row ***out, size_t *n_out,
                      dcp_error *err);

/* Returns the number of blocks of a dataset: 4 MiB each, the last one possibly shorter. */
static inline uint64_t format_index_blocks(uint64_t bytes) {
    return bytes / BLOCK_BYTES + (bytes % BLOCK_BYTES != 0);
}

/* Returns the size of block `b` of a dataset. */
static inline uint64_t format_index_block_bytes(uint64_t bytes, uint64_t b) {
    uint64_t left = bytes - b * BLOCK_BYTES;
    return left < BLOCK_BYTES ? left : BLOCK_BYTES;
}

/* Compute the checksum of a dataset from its blocks' checksums, or from their raw forms. */
uint64_t format_index_join_blocks(const uint64_t *crcs, uint64_t bytes);
uint64_t format_index_join_sums(const uint64_t *sums, uint64_t bytes);

/* Continues the state id with a tensor: path, dtype, shape, checksum. raw is ~0 initially, and is
 * inverted at the end. */
uint64_t format_index_state_id(uint64_t raw, const dcp_tensor *tensor, uint64_t crc);

/* Returns the length of the tensor's path in a dataset's path: without the "@<digits>" of a further
 * box of the tensor. */
size_t format_index_tensor_path(const char *dataset_path);
