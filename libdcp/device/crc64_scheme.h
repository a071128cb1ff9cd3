/* The raw CRC-64 of a range (core/crc64.h), computed by many threads. The kernel in crc64_kernel.cu
 * and the host compile the same source; on the host, a test runs the blocks and threads one after
 * the other.
 *
 * A message is cut into 8-byte words that begin at multiples of 8 bytes of memory. Zeros before a
 * message do not change its raw checksum. So bytes of the first word that precede the range are
 * replaced by zeros. Blocks are counted backwards, starting at the last full word; words of zeros
 * before the first word complete the first block. The bytes after the last full word, at most 7,
 * are the tail.
 *
 *     block   SCHEME_ROWS rows of SCHEME_THREADS words; thread t handles word t of each row, so
 *             neighbouring threads read neighbouring words
 *     thread  v = v * x^(64 SCHEME_THREADS) + word, row by row: 8 table lookups per word
 *     joined  the threads' values v, added up in pairs: left * x^(64 distance) + right, for the
 *             distances 1, 2, 4 and so on
 *     range   the sum over the blocks of joined * x^(64 + 8 n), plus the tail; n is the number of
 *             bytes of the range that follow the block
 *
 * Products and sums are those of polynomials over GF(2), modulo the CRC's polynomial. Sums are XOR,
 * so their order does not matter. */
#pragma once

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __CUDACC__
#define SCHEME_FN __host__ __device__ static inline
#else
#define SCHEME_FN static inline
#endif

#define SCHEME_THREADS 256u
#define SCHEME_ROWS 32u
#define SCHEME_WORDS (SCHEME_THREADS * SCHEME_ROWS) /* per block */
#define SCHEME_POLYNOMIAL 0xc96c5795d7870f42ULL     /* ECMA-182, reflected: bit 63 is x^0 */

typedef struct scheme_tables {
    uint64_t row[8][256]; /* [k][v]: byte k of a word, with value v, times x^(64 SCHEME_THREADS) */
    uint64_t power[64];   /* [i]: x^(8 * 2^i), a shift by 2^i bytes */
} scheme_tables;

/* A range of memory as words. */
typedef struct scheme_range {
    const unsigned char *start, *end;
    /* end of the full words, where the tail begins; at least `start` */
    const unsigned char *words_end;
    uint64_t words, blocks; /* the first word may contain bytes before `start` */
} scheme_range;

SCHEME_FN scheme_range device_crc64_range_of(const void *data, uint64_t bytes) {
    scheme_range r;
    const unsigned char *first;
    r.start = (const unsigned char *)data;
    r.end = r.start + bytes;
    first = r.start - (uintptr_t)r.start % 8;
    r.words_end = r.end - (uintptr_t)r.end % 8;
    if (r.words_end < r.start) r.words_end = r.start; /* everything is tail */
    r.words = r.words_end > r.start ? (uint64_t)(r.words_end - first) / 8 : 0;
    r.blocks = (r.words + SCHEME_WORDS - 1) / SCHEME_WORDS;
    return r;
}

SCHEME_FN uint64_t device_crc64_multiply(uint64_t a, uint64_t b) {
    uint64_t product = 0;
    for (int i = 0; i < 64; i++) {
        product ^= b & (0 - (a >> 63));
        a <<= 1;
        b = (b >> 1) ^ (SCHEME_POLYNOMIAL & (0 - (b & 1)));
    }
    return product;
}

/* Returns v times x^(8 bytes). */
SCHEME_FN uint64_t device_crc64_shift(const scheme_tables *t, uint64_t v, uint64_t bytes) {
    for (int i = 0; bytes; i++, bytes >>= 1)
        if (bytes & 1) v = device_crc64_multiply(t->power[i], v);
    return v;
}

/* Returns the word that is `back` words before the end of the full words (1 is the last); 0 before
 * the first. */
SCHEME_FN uint64_t device_crc64_word(const scheme_range *r, uint64_t back) {
    const unsigned char *at;
    uint64_t word;
    if (back > r->words) return 0;
    at = r->words_end - 8 * back;
    word = *(const uint64_t *)(const void *)at;
    if (at < r->start) word &= ~0ULL << 8 * (r->start - at);
    return word;
}

/* Returns the sum of thread t of a block. */
SCHEME_FN uint64_t device_crc64_thread(uint64_t row[8][256], const scheme_range *r, uint64_t block,
                                       unsigned t) {
    uint64_t v = 0, back = (r->blocks - block) * SCHEME_WORDS - t;
    for (unsigned i = 0; i < SCHEME_ROWS; i++, back -= SCHEME_THREADS) {
        uint64_t w = v;
        v = device_crc64_word(r, back);
        for (int k = 0; k < 8; k++) v ^= row[k][w >> 8 * k & 255];
    }
    return v;
}

/* Joins the sums of two threads, or groups of threads, whose distance is 2^log_distance. */
SCHEME_FN uint64_t device_crc64_join(const scheme_tables *t, uint64_t left, uint64_t right,
                                     int log_distance) {
    return device_crc64_multiply(t->power[3 + log_distance], left) ^ right;
}

/* Returns a block's contribution to the range's checksum, from the joined sum of its threads. */
SCHEME_FN uint64_t device_crc64_block(const scheme_tables *t, const scheme_range *r, uint64_t block,
                                      uint64_t joined) {
    uint64_t after = (r->blocks - 1 - block) * SCHEME_WORDS * 8 + (uint64_t)(r->end - r->words_end);
    return device_crc64_shift(t, joined, 8 + after);
}

/* Returns the tail's contribution. */
SCHEME_FN uint64_t device_crc64_tail(const scheme_range *r) {
    uint64_t v = 0;
    for (const unsigned char *at = r->words_end; at < r->end; at++) {
        v ^= *at;
        for (int i = 0; i < 8; i++) v = (v >> 1) ^ (SCHEME_POLYNOMIAL & (0 - (v & 1)));
    }
    return v;
}

#ifndef __CUDACC__ /* on the host */
#include "core/crc64.h"

/* Both tables are computed by shifts of the raw checksum: a shift by n bytes multiplies it by x^(8
 * n). */
static inline void device_crc64_tables_fill(scheme_tables *tables) {
    const uint64_t one = 1ULL << 63; /* x^0 */
    for (int i = 0; i < 64; i++) tables->power[i] = core_crc64_shift(one, 1ULL << i);
    for (int k = 0; k < 8; k++)
        for (uint64_t value = 0; value < 256; value++)
            tables->row[k][value] = core_crc64_shift(value << 8 * k, 8 * SCHEME_THREADS);
}
#endif

/* The device's checksum of a range of its memory, as a CUDA kernel. */

#ifdef __cplusplus
extern "C" {
#endif

/* Device memory in which a kernel's blocks add up their contributions. All 0 between the kernels of
 * a stream. */
typedef struct device_crc64_cell {
    unsigned long long sum, blocks;
} device_crc64_cell;

/* Launches the kernel that writes the raw CRC-64 of device memory to *pinned. `tables` and `cell`
 * are in device memory. */
cudaError_t device_crc64_kernel_launch(const scheme_tables *tables, const void *data,
                                       uint64_t bytes, device_crc64_cell *cell, uint64_t *pinned,
                                       cudaStream_t stream);

#ifdef __cplusplus
}
#endif
