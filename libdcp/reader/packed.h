/* Rows of shards as 64-bit words, and the checksum of a tensor, computed from its rows'
 * checksums. */
#pragma once

#include <stdbool.h>

#include "comm/messages.h"
#include "reader/checkpoint.h"

/* Computing the checksum of a tensor from the checksums of its datasets. */

/* Returns true if each dataset is contiguous in the tensor, for example because the tensor is
 * divided along dimension 0. Only then do the datasets' checksums determine the tensor's. */
bool reader_tensor_is_runs(const dcp_checkpoint *ckpt, const reader_tensor *t);

/* Returns the tensor's checksum according to the tables. Requires that reader_tensor_is_runs
 * returns true. */
uint64_t reader_tensor_checksum(const dcp_checkpoint *ckpt, const reader_tensor *t);

/* The sum that the two functions above and reader_packed_join compute. Datasets are added to it one
 * at a time. */
typedef struct reader_tensor_sum {
    const reader_tensor *of;
    dcp_box whole;
    uint64_t raw, crc;
    bool is_runs, is_one; /* is_one: one dataset is the whole tensor, and crc is its checksum */
} reader_tensor_sum;

/* Rows of shards as 64-bit words. Ranks exchange rows, and homes store rows, in this form:
 *
 *   number of the tensor | number of the file << 32
 *   number of blocks in the tensor's preceding datasets | length of the suffix << 47 | 1 << 63 if
 *       the row has no checksums of blocks
 *   offset in the file; bytes; checksum: three words
 *   the starts in all dimensions, then the counts
 *   the checksums of the blocks, if the row has them
 *   the suffix: the part of the row's path after the tensor's path, such as "@1"; padded with
 *       zeros */

/* A decoded row. */
typedef struct reader_packed {
    size_t tensor, file;
    uint64_t first_block, offset, bytes, crc;
    dcp_box box;
    const uint64_t *crcs; /* NULL: the row has no checksums of blocks */
    const char *suffix;
    size_t suffix_bytes, words;
} reader_packed;

/* Appends a row. `suffix` is the part of the row's path after the tensor's path; `crcs` are the
 * checksums of its blocks, or NULL. */
int reader_packed_append(comm_buffer *message, size_t tensor, size_t file, const format_row *row,
                         const char *suffix, const uint64_t *crcs, dcp_error *err);

/* Decodes a row that is known to be valid. */
void reader_packed_decode(const dcp_checkpoint *ckpt, const uint64_t *row, reader_packed *out);

static inline size_t reader_packed_tensor(const uint64_t *row) { return (uint32_t)row[0]; }
static inline size_t reader_packed_file(const uint64_t *row) { return row[0] >> 32; }

/* Sets the tensor's number in the row. */
static inline void reader_packed_renumber(uint64_t *row, size_t tensor) {
    row[0] = row[0] >> 32 << 32 | (uint32_t)tensor;
}

/* Decodes and checks a row that another rank sent; `end` is the end of the message. Returns
 * DCP_ERR_MISMATCH if the row is truncated, its box is not in its tensor, or its bytes are not in
 * its file. */
int reader_packed_check(const dcp_checkpoint *ckpt, const uint64_t *row, const uint64_t *end,
                        reader_packed *out, dcp_error *err);

/* Joins all n rows of a tensor. Returns DCP_ERR_CORRUPT if they don't cover the tensor exactly
 * once. The rows must be sorted by file, and by path within a file. Sorts them into the order of
 * the tensor's datasets, and stores in each row the number of blocks before it. Fills in the
 * members of the tensor that depend on all rows. Rows without elements go to the end and are not
 * counted, unless the tensor has no elements. */
int reader_packed_join(const dcp_checkpoint *ckpt, reader_tensor *t, uint64_t **rows, size_t n,
                       dcp_error *err);

/* Like reader_join_near, for packed rows: [*first, *end) can share elements with the box. */
void reader_packed_near(const reader_tensor *t, const uint64_t *const *rows, size_t n,
                        const dcp_box *box, size_t *first, size_t *end);

/* Makes datasets from n rows. *out is a single allocation, which the caller frees. The datasets
 * point to the blocks' checksums in the rows. */
int reader_packed_expand(dcp_checkpoint *ckpt, const uint64_t *const *rows, size_t n,
                         reader_dataset **out, dcp_error *err);
