/* Counts of bytes, and little-endian integers in buffers without alignment. */
#pragma once

#include <stdint.h>

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
