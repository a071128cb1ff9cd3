/* Random numbers, boxes and bytes for property tests: the same sequence in every run. */
#ifndef TESTS_UNIT_CORE_FIXTURE_H
#define TESTS_UNIT_CORE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/box.h"
#include "dcp/dcp.h"

/* splitmix64 */
static inline uint64_t any(void) {
    static uint64_t seed;
    uint64_t z = seed += 0x9e3779b97f4a7c15ULL;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
    return z ^ z >> 31;
}

/* A number from `low` to `high`, inclusive. */
static inline uint64_t between(uint64_t low, uint64_t high) {
    return low + any() % (high - low + 1);
}

static inline unsigned char *any_bytes(uint64_t bytes) {
    unsigned char *data = malloc(bytes + 1);
    assert_non_null(data);
    for (uint64_t i = 0; i < bytes; i++) data[i] = (unsigned char)any();
    return data;
}

/* A part of [0, shape[d]) in each dimension, with at least `least` elements in each. */
static inline dcp_box any_box(uint32_t ndim, const uint64_t *shape, uint64_t least) {
    dcp_box box = {0};
    for (uint32_t d = 0; d < ndim; d++) {
        box.count[d] = between(least, shape[d]);
        box.start[d] = between(0, shape[d] - box.count[d]);
    }
    return box;
}

/* One to eight dimensions of prime sizes, which are smaller if there are more dimensions. */
static inline uint32_t any_shape(uint64_t *shape) {
    static const uint64_t primes[] = {1, 2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31};
    uint32_t ndim = (uint32_t)between(1, DCP_MAX_DIMS);
    memset(shape, 0, DCP_MAX_DIMS * sizeof *shape);
    for (uint32_t d = 0; d < ndim; d++) shape[d] = primes[between(0, ndim < 3 ? 11 : 10 / ndim)];
    return ndim;
}

#endif
