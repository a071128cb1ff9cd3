/* Asking for memory before it is needed. The tensors that planning walks over are spread over the
 * heap, and with thousands of them no cache holds them. A walk that asks for the tensor some steps
 * ahead does not wait for each. */
#ifndef DCP_CORE_PREFETCH_H
#define DCP_CORE_PREFETCH_H

#include <stddef.h>

enum { PREFETCH_DISTANCE = 8, CACHE_LINE = 64 }; /* steps; bytes */

/* Any address will do, as nothing is read. */
static inline void core_prefetch(const void *memory, size_t bytes) {
    for (size_t at = 0; at < bytes; at += CACHE_LINE) __builtin_prefetch((const char *)memory + at);
}

#endif
