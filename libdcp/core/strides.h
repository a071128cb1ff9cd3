/* Locates the elements of boxes whose memory has strides. All other code treats a box as if it were
 * dense and row-major, and requests parts of its bytes by offset. `data` is the address of the
 * first element; if `strides` is NULL, the memory is dense. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "dcp/tensor.h"

typedef struct stride_loop {
    uint64_t count;
    int64_t stride; /* bytes from one element to the next */
} stride_loop;

typedef struct box_strides {
    uint64_t run_bytes; /* bytes that are contiguous in memory; at least one element */
    bool overlaps;      /* elements may share bytes, so the box cannot be loaded */
    uint32_t dims;      /* loops over runs, innermost first */
    uint32_t near;      /* if runs are short, the loop with the smallest stride; otherwise 0 */
    stride_loop loop[DCP_MAX_DIMS];
} box_strides;

/* Converts strides, which are in bytes, one per dimension, to loops over runs. Merges dimensions
 * that are contiguous: no loop remains if the memory is dense. Returns false if elements would lie
 * outside the address space. */
bool core_strides_merge(uint32_t ndim, uint64_t elem_bytes, const uint64_t *count,
                        const int64_t *strides, const void *data, box_strides *out);

/* Returns the address of byte `offset` of the box. *contiguous becomes the number of bytes that are
 * contiguous starting there; UINT64_MAX if the box is dense. */
unsigned char *core_strides_find(const void *data, const box_strides *strides, uint64_t offset,
                                 uint64_t *contiguous);

/* Copy bytes [offset, offset + bytes) of the box into `out`, or from `from` into the box. */
void core_strides_get(const void *data, const box_strides *strides, uint64_t offset, uint64_t bytes,
                      void *out);
void core_strides_put(void *data, const box_strides *strides, uint64_t offset, uint64_t bytes,
                      const void *from);

/* Continues a raw checksum (core/crc64.h) with these bytes of the box, which it reads in place. */
uint64_t core_strides_sum(uint64_t raw, const void *data, const box_strides *strides,
                          uint64_t offset, uint64_t bytes);
