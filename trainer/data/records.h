/* Records in safetensors files, and packing them into samples. */
#pragma once

#include <stdint.h>

#include <dcp/error.h>

/* Packs items of given sizes into bins of one size. */

typedef struct data_bins {
    uint64_t n;
    uint64_t *first; /* [n + 1] bin b contains items[first[b]] ... items[first[b + 1] - 1] */
    uint64_t *items; /* the items' numbers */
} data_bins;

/* Places the largest first, each into the fullest bin that has room for it, or into a new one
 * (Johnson 1974). The bins depend only on the sizes, each of which must be from 1 to `room`. */
int data_bins_pack(const uint64_t *sizes, uint64_t n, uint64_t room, data_bins *out,
                   dcp_error *err);
void data_bins_free(data_bins *bins); /* accepts a zeroed struct */
