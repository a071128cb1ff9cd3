/* Counts of bytes, integers in buffers, searches in ascending lists, and copies that leave the
 * processor's cache alone. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Counts of bytes, and little-endian integers in buffers without alignment. */

#define PAGE_BYTES 4096u /* datasets, tables and files end on pages; O_DIRECT wants whole ones */

/* The largest page of a kernel's page cache: as on arm64 and ppc64. No two ranks write to one. */
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

/* Looking for a number in an ascending list. */

/* The first of n elements whose number is `least` or larger; n where there is none. Elements are
 * `stride` bytes apart, and `number` is that of the first one. */
static inline size_t core_first_from(const uint64_t *number, size_t n, size_t stride,
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

/* Copies whose bytes are for others, who read them later: the processor's cache keeps what the
 * program has in it. */

/* As memcpy. Other threads see the bytes once this one has called core_past_cache_end. */
void core_past_cache_copy(void *to, const void *from, uint64_t bytes);
void core_past_cache_end(void);
