/* Philox4x32-10, and normal numbers from it: four per counter, by Box and Muller in fp64. */
#include "random/random.h"

#include <assert.h>
#include <math.h>

enum { ROUNDS = 10, LANES = 4 };

void random_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < ROUNDS; round++) {
        const uint64_t a = (uint64_t)0xD2511F53 * c0;
        const uint64_t b = (uint64_t)0xCD9E8D57 * c2;
        const uint32_t n0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        const uint32_t n2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c0 = n0;
        c1 = (uint32_t)b;
        c2 = n2;
        c3 = (uint32_t)a;
        k0 += 0x9E3779B9;
        k1 += 0xBB67AE85;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

uint64_t random_stream(const char *name) {
    uint64_t hash = 0xcbf29ce484222325;
    for (const char *c = name; *c; c++) hash = (hash ^ (unsigned char)*c) * 0x100000001b3;
    return hash;
}

static void normal_pair(uint32_t a, uint32_t b, double std, float out[2]) {
    const double two_pi = 6.283185307179586;
    /* log's argument is in (0, 1] */
    const double radius = std * sqrt(-2.0 * log(((double)a + 1.0) * 0x1p-32));
    const double angle = two_pi * ((double)b * 0x1p-32);
    out[0] = (float)(radius * cos(angle));
    out[1] = (float)(radius * sin(angle));
}

void random_normal(float *out, uint64_t seed, uint64_t stream, uint64_t first, uint64_t n,
                   double std) {
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    float lanes[LANES];
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t block = (first + i) / LANES, lane = (first + i) % LANES;
        if (i == 0 || lane == 0) {
            const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)stream,
                                         (uint32_t)(stream >> 32)};
            uint32_t bits[4];
            random_philox(counter, key, bits);
            normal_pair(bits[0], bits[1], std, lanes);
            normal_pair(bits[2], bits[3], std, lanes + 2);
        }
        out[i] = lanes[lane];
    }
}

enum { FEISTEL_ROUNDS = 6 };

static uint32_t mix(uint32_t half, uint32_t round, const uint32_t key[2], uint64_t epoch) {
    const uint32_t counter[4] = {half, round, (uint32_t)epoch, (uint32_t)(epoch >> 32)};
    uint32_t out[4];
    random_philox(counter, key, out);
    return out[0];
}

/* A permutation without a table: a Feistel network over the smallest power of four that is at least
 * n, repeated until the value is below n (Black and Rogaway 2002). A Feistel network is a
 * bijection, whatever function its rounds apply. Repeating a bijection until the value is in the
 * range again is a bijection of the range. Fewer than four repetitions are expected. */
uint64_t random_permute(uint64_t i, uint64_t n, uint64_t seed, uint64_t epoch) {
    unsigned half_bits = 1;
    assert(i < n);
    while (half_bits < 32 && (uint64_t)1 << (2 * half_bits) < n) half_bits++;
    const uint32_t mask = (uint32_t)(((uint64_t)1 << half_bits) - 1);
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    do {
        uint32_t left = (uint32_t)(i >> half_bits), right = (uint32_t)i & mask;
        for (uint32_t round = 0; round < FEISTEL_ROUNDS; round++) {
            const uint32_t next = left ^ (mix(right, round, key, epoch) & mask);
            left = right;
            right = next;
        }
        i = (uint64_t)left << half_bits | right;
    } while (i >= n);
    return i;
}
