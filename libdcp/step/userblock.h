/* The first 4,096 bytes of a checkpoint's file: where its tables are, and the checksums of all that
 * is not tensor data. docs/format.md has the byte offsets. */
#pragma once

#include <stdint.h>

#include "core/bytes.h"
#include "dcp/error.h"
#include "dcp/layout.h"

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

typedef struct step_range {
    uint64_t offset, bytes;
    uint64_t crc;
} step_range;

typedef struct step_userblock {
    dcp_layout layout;
    uint64_t file_bytes;
    uint64_t rows;      /* of the index */
    uint64_t row_bytes; /* one row of it */
    step_range index, blocks, meta;
    uint64_t outside_crc; /* of all bytes that are neither user block nor tensor data, in order */
} step_userblock;

void step_userblock_encode(const step_userblock *ub, unsigned char *out /* USERBLOCK_BYTES */);

/* Checks magic, checksum, version and that every range lies in the file of `file_bytes` bytes. */
int step_userblock_decode(const unsigned char *in, uint64_t file_bytes, const char *path,
                          step_userblock *out, dcp_error *err);
