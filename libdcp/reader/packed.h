/* Rows of shards as 64-bit words, as ranks send them to each other, and a tensor's checksum,
 * which is made of its rows'. */
#pragma once

#include "comm/messages.h"
#include "reader/checkpoint.h"

/* A tensor's checksum, from those of its datasets. */

/* 1 where each dataset is one run of the tensor's bytes: cut on dimension 0, for example. Only then
 * do the datasets' checksums give the tensor's. */
int reader_tensor_is_runs(const dcp_checkpoint *ckpt, const reader_tensor *t);

/* The tensor's checksum, as the tables have it; its datasets are runs. */
uint64_t reader_tensor_checksum(const dcp_checkpoint *ckpt, const reader_tensor *t);

/* Both for datasets that are added one by one. */
typedef struct reader_tensor_sum {
    const reader_tensor *of;
    dcp_box whole;
    uint64_t raw, crc;
    int is_runs, is_one; /* one dataset is all of the tensor: crc is its own */
} reader_tensor_sum;

/* Rows of shards as 64-bit words, as ranks send them to each other and tensors' homes keep them:
 *
 *   tensor's number, file's number << 32
 *   blocks of the tensor's datasets before it, bytes of its suffix << 47, 1 << 63: without blocks
 *   offset in the file, bytes, checksum
 *   start and count in each dimension
 *   the checksums of its blocks, unless it is without
 *   its suffix: what its path has after the tensor's, "@1"; padded with zeros */

/* A row, as it lies in those words. */
typedef struct reader_packed {
    size_t tensor, file;
    uint64_t first_block, offset, bytes, crc;
    dcp_box box;
    const uint64_t *crcs; /* NULL: it is without */
    const char *suffix;
    size_t suffix_bytes, words;
} reader_packed;

/* Appends a row. `suffix` is what the row's path has after the tensor's; `crcs` are its blocks', or
 * NULL. */
int reader_packed_append(comm_message *message, size_t tensor, size_t file, const format_row *row,
                         const char *suffix, const uint64_t *crcs, dcp_error *err);

/* Of a row that was checked. */
void reader_packed_look(const dcp_checkpoint *ckpt, const uint64_t *row, reader_packed *out);

static inline size_t reader_packed_tensor(const uint64_t *row) { return (uint32_t)row[0]; }
static inline size_t reader_packed_file(const uint64_t *row) { return row[0] >> 32; }

/* Gives the row another tensor's number. */
static inline void reader_packed_renumber(uint64_t *row, size_t tensor) {
    row[0] = row[0] >> 32 << 32 | (uint32_t)tensor;
}

/* Looks at a row that came from another rank, before `end`. DCP_ERR_MISMATCH: it is none: it is cut
 * off, its box lies outside of its tensor, or its bytes outside of its file. */
int reader_packed_check(const dcp_checkpoint *ckpt, const uint64_t *row, const uint64_t *end,
                        reader_packed *out, dcp_error *err);

/* Joins all n rows of a tensor, which ascend by file and there by path: DCP_ERR_CORRUPT where they
 * don't cover it. Puts them in the order of the tensor's datasets, tells each the blocks before it,
 * and fills in what the tensor has of them all. Those without elements go to the end, and don't
 * count. */
int reader_packed_join(const dcp_checkpoint *ckpt, reader_tensor *t, uint64_t **rows, size_t n,
                       dcp_error *err);

/* The rows in `known` that can share elements with the box, as reader_join_near. */
void reader_packed_near(const reader_tensor *t, const uint64_t *const *rows, size_t n,
                        const dcp_box *box, size_t *first, size_t *end);

/* The datasets of n rows, which ascend by tensor, as one allocation. The checksums of their blocks
 * stay where the rows are. */
int reader_packed_expand(dcp_checkpoint *ckpt, const uint64_t *const *rows, size_t n,
                         reader_dataset **out, dcp_error *err);
