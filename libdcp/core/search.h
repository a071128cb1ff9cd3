/* Looking for a number in an ascending list. */
#pragma once

#include <stddef.h>
#include <stdint.h>

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
