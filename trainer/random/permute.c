/* A permutation without a table: a Feistel network over the smallest power of four that holds n,
 * walked until the value lies below n (Black and Rogaway 2002). A Feistel network is a bijection
 * whatever its rounds are, and following a bijection's cycle from inside the range back into it is
 * one as well. Less than four walks are expected. */
#include "random/random.h"

enum { ROUNDS = 6 };

static uint32_t mix(uint32_t half, uint32_t round, const uint32_t key[2], uint64_t epoch) {
    const uint32_t counter[4] = {half, round, (uint32_t)epoch, (uint32_t)(epoch >> 32)};
    uint32_t out[4];
    random_philox(counter, key, out);
    return out[0];
}

uint64_t random_permute(uint64_t i, uint64_t n, uint64_t seed, uint64_t epoch) {
    unsigned half_bits = 1;
    while (half_bits < 32 && (uint64_t)1 << (2 * half_bits) < n) half_bits++;
    const uint32_t mask = (uint32_t)(((uint64_t)1 << half_bits) - 1);
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    do {
        uint32_t left = (uint32_t)(i >> half_bits), right = (uint32_t)i & mask;
        for (uint32_t round = 0; round < ROUNDS; round++) {
            const uint32_t next = left ^ (mix(right, round, key, epoch) & mask);
            left = right;
            right = next;
        }
        i = (uint64_t)left << half_bits | right;
    } while (i >= n);
    return i;
}
