/* A redundancy file or shard that is being written: under a temporary name until it is complete and
 * durable. */
#pragma once

#include "redundancy/parity.h"

typedef struct redundancy_output {
    strip_file file;
    char *tmp, *path;
} redundancy_output;

/* Creates it with space for `bytes` after `start`. The file's checksums are of blocks of
 * `block_bytes`. On failure nothing is left. */
int redundancy_output_begin(redundancy_output *o, const char *folder, const char *name,
                            uint64_t start, uint64_t bytes, uint64_t block_bytes, dcp_error *err);

/* Writes header and table of a redundancy file, whose payload's checksums the output has. */
int redundancy_output_header(const redundancy_output *o, parity_header *h, dcp_error *err);

/* Durable, then named, then its folder durable. */
int redundancy_output_publish(redundancy_output *o, dcp_error *err);

/* Frees it; removes the file where it has no name yet. What was not begun is ignored. */
void redundancy_output_end(redundancy_output *o);
