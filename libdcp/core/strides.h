/* Where the elements of a box with strides lie in memory. Here alone it is known: to all others a
 * box is a row of bytes, dense and row-major, of which they ask for parts by offset. `data` is the
 * address of the first element; `strides` NULL says that the memory is dense. */
#pragma once

#include <stdint.h>

#include "dcp/tensor.h"

typedef struct stride_loop {
    uint64_t count;
    int64_t step; /* bytes from one to the next */
} stride_loop;

typedef struct box_strides {
    uint64_t run_bytes; /* contiguous in memory; at least an element */
    int overlaps;       /* elements may share bytes, so nothing can be loaded */
    uint32_t dims;      /* loops over runs, innermost first */
    uint32_t near;      /* the one along which runs are closest, where they are short; else 0 */
    stride_loop loop[DCP_MAX_DIMS];
} box_strides;

/* From bytes a dimension. Merges dimensions that are contiguous: no loop is left where the memory
 * is dense. Returns 0 where the elements' addresses around `data` are no addresses. */
int core_strides_merge(uint32_t ndim, uint64_t elem_bytes, const uint64_t *count,
                       const int64_t *strides, const void *data, box_strides *out);

/* Memory of the box's byte number `offset`, and how many from there on are contiguous (UINT64_MAX
 * in dense memory). */
unsigned char *core_strides_find(const void *data, const box_strides *strides, uint64_t offset,
                                 uint64_t *contiguous);

/* Bytes [offset, offset + bytes) of the box into `out`, or from there. */
void core_strides_get(const void *data, const box_strides *strides, uint64_t offset, uint64_t bytes,
                      void *out);
void core_strides_put(void *data, const box_strides *strides, uint64_t offset, uint64_t bytes,
                      const void *from);

/* Goes on with a raw checksum (core/crc64.h) over those bytes, where they lie. */
uint64_t core_strides_sum(uint64_t raw, const void *data, const box_strides *strides,
                          uint64_t offset, uint64_t bytes);
