/* Records in safetensors files, and packing them into samples. */
#pragma once

#include <stdint.h>

#include <dcp/error.h>

/* Packing things of given sizes into bins of one size. */

typedef struct data_bins {
    uint64_t n;
    uint64_t *first;  /* [n + 1] bin b has things[first[b]] ... things[first[b + 1] - 1] */
    uint64_t *things; /* their numbers */
} data_bins;

/* The largest first, each into the bin that has the least room for it, or a new one (Johnson 1974).
 * Bins are a function of the sizes alone, which are from 1 to `room`. */
int data_bins_pack(const uint64_t *sizes, uint64_t n, uint64_t room, data_bins *out,
                   dcp_error *err);
void data_bins_free(data_bins *bins); /* zeros are fine */
