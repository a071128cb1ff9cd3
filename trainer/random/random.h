/* Random numbers from counters: a value depends only on (seed, stream, index), not on which rank
 * requests it or in which order. Philox4x32-10 (Salmon et al. 2011). */
#pragma once

#include <stddef.h>
#include <stdint.h>

void random_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* The number of a stream from its name, such as a parameter's (FNV-1a). */
uint64_t random_stream(const char *name);

/* out[n]: elements first ... first + n - 1 of the stream, normally distributed with mean 0. */
void random_normal(float *out, uint64_t seed, uint64_t stream, uint64_t first, uint64_t n,
                   double std);

/* Returns the image of i under a permutation of 0 ... n - 1 that depends on seed and epoch. Nothing
 * is stored. Requires i < n. */
uint64_t random_permute(uint64_t i, uint64_t n, uint64_t seed, uint64_t epoch);
