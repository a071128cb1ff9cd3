/* Searching in lists that ascend by a number of each entry. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The last of n > 0 entries whose number is at most `value`; the first one where none is. `number`
 * is that of the first entry, `size` the bytes of an entry. */
static inline size_t data_sorted_last(const uint64_t *number, size_t n, size_t size,
                                      uint64_t value) {
    size_t low = 0, high = n;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (*(const uint64_t *)(const void *)((const char *)number + middle * size) <= value)
            low = middle;
        else
            high = middle;
    }
    return low;
}
