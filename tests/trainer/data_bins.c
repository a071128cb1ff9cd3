/* Packing: everything is in one bin, no bin holds more than it takes, and few are half empty. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#include "data/records.h"
#include "random/random.h"

static void fills_the_fullest_bin_first(void **state) {
    (void)state;
    static const uint64_t sizes[] = {3, 5, 2, 6, 4}, first[] = {0, 2, 4, 5},
                          things[] = {3, 2, 1, 0, 4};
    data_bins bins;
    assert_int_equal(data_bins_pack(sizes, 5, 8, &bins, NULL), DCP_OK);
    assert_int_equal(bins.n, 3);
    assert_memory_equal(bins.first, first, sizeof first);
    assert_memory_equal(bins.items, things, sizeof things);
    data_bins_free(&bins);
}

/* At most one bin is half empty: what is in another one would have gone there. */
static void check(const uint64_t *sizes, uint64_t n, uint64_t room) {
    data_bins bins;
    unsigned char *seen = calloc(n, 1);
    uint64_t half_empty = 0, things = 0;
    assert_int_equal(data_bins_pack(sizes, n, room, &bins, NULL), DCP_OK);
    assert_int_equal(bins.first[0], 0);
    assert_int_equal(bins.first[bins.n], n);
    for (uint64_t bin = 0; bin < bins.n; bin++) {
        uint64_t sum = 0;
        for (uint64_t i = bins.first[bin]; i < bins.first[bin + 1]; i++, things++) {
            assert_true(bins.items[i] < n && !seen[bins.items[i]]);
            seen[bins.items[i]] = 1;
            sum += sizes[bins.items[i]];
        }
        assert_true(sum > 0 && sum <= room);
        half_empty += 2 * sum <= room;
    }
    assert_int_equal(things, n);
    assert_true(half_empty <= 1);
    data_bins_free(&bins);
    free(seen);
}

static void packs_what_fits(void **state) {
    (void)state;
    static const uint64_t rooms[] = {1, 2, 63, 64, 65, 128, 1000}, counts[] = {1, 2, 7, 500};
    uint64_t sizes[500];
    for (size_t r = 0; r < sizeof rooms / sizeof *rooms; r++)
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
            for (uint64_t most = rooms[r]; most > 0; most /= 3) {
                for (uint64_t i = 0; i < counts[c]; i++)
                    sizes[i] = 1 + random_permute(i, 500, r * 100 + c, most) % most;
                check(sizes, counts[c], rooms[r]);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fills_the_fullest_bin_first),
        cmocka_unit_test(packs_what_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
