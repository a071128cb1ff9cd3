/* Sizes in bytes, memory for arrays, integers in buffers, searches in ascending lists, and copies
 * that bypass the processor's cache. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* Allocates memory for n elements of `size` bytes, without zeroing it. (For zeroed memory, use
 * calloc, which checks for overflow as well.) Returns NULL if memory is short, or if n * size
 * overflows. */
static inline void *core_array(uint64_t n, size_t size) {
    size_t bytes;
    return __builtin_mul_overflow(n, size, &bytes) ? NULL : malloc(bytes);
}

/* Changes the size of an array to n elements. Returns NULL on failure; `old` is still valid
 * then. */
static inline void *core_array_grow(void *old, uint64_t n, size_t size) {
    size_t bytes;
    return __builtin_mul_overflow(n, size, &bytes) ? NULL : realloc(old, bytes);
}

/* Sizes in bytes, and little-endian integers in unaligned buffers. */

#define PAGE_BYTES 4096u /* datasets, tables and files end at multiples of this, for O_DIRECT */

/* The largest page size of any kernel's page cache (on arm64 and ppc64). No two ranks write to the
 * same page of this size. */
#define LARGEST_PAGE_BYTES 65536u

static inline uint64_t core_min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }

static inline uint64_t core_round_to_pages(uint64_t bytes) {
    return (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

static inline void core_put_u32(unsigned char *p, uint32_t v) {
    for (int i = 0; i < 4; i++) p[i] = (unsigned char)(v >> 8 * i);
}

static inline void core_put_u64(unsigned char *p, uint64_t v) {
    for (int i = 0; i < 8; i++) p[i] = (unsigned char)(v >> 8 * i);
}

static inline uint32_t core_get_u32(const unsigned char *p) {
    uint32_t v = 0;
    for (int i = 0; i < 4; i++) v |= (uint32_t)p[i] << 8 * i;
    return v;
}

static inline uint64_t core_get_u64(const unsigned char *p) {
    uint64_t v = 0;
    for (int i = 0; i < 8; i++) v |= (uint64_t)p[i] << 8 * i;
    return v;
}

/* Searches for a number in an ascending list. */

/* Returns the first of n elements whose number is at least `least`; n if there is none. Elements
 * are `stride` bytes apart, and `number` points to the number of the first one. */
static inline size_t core_lower_bound(const uint64_t *number, size_t n, size_t stride,
                                      uint64_t least) {
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (*(const uint64_t *)(const void *)((const char *)number + middle * stride) < least)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Copies that bypass the processor's cache, so the program's own data stay in the cache. The copy
 * is read only later, by another thread or process. */

/* Like memcpy. Other threads see the bytes once the calling thread has called
 * core_nontemporal_fence. */
void core_nontemporal_copy(void *to, const void *from, uint64_t bytes);
void core_nontemporal_fence(void);
