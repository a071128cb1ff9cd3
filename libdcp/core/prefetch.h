/* Asking for memory before it is needed. What planning walks over lies all over the heap, and with
 * thousands of tensors on many ranks of a host it is in no cache any more: a walk that asks for
 * what comes a few steps later does not wait for each. */
#ifndef DCP_CORE_PREFETCH_H
#define DCP_CORE_PREFETCH_H

#include <stddef.h>

enum { PREFETCH_DISTANCE = 8, CACHE_LINE = 64 }; /* steps; bytes */

/* Any address will do, as nothing is read. */
static inline void core_prefetch(const void *memory, size_t bytes) {
    for (size_t at = 0; at < bytes; at += CACHE_LINE) __builtin_prefetch((const char *)memory + at);
}

#endif
