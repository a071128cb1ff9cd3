/* The scheme by which a device computes checksums, run on the host block by block and thread by
 * thread: it gives the same number as core/crc64.c for any length and any position in memory. */
#include "core/crc64.h"
#include "device/crc64_scheme.h"
#include "support/core_fixture.h"

static scheme_tables tables;

/* Computes as the kernel does. */
static uint64_t by_scheme(const void *data, uint64_t bytes) {
    const scheme_range r = device_crc64_range_of(data, bytes);
    uint64_t sum = device_crc64_tail(&r), v[SCHEME_THREADS];
    for (uint64_t b = r.blocks; b-- > 0;) {
        for (unsigned t = 0; t < SCHEME_THREADS; t++)
            v[t] = device_crc64_thread(tables.row, &r, b, t);
        for (int level = 0; 1u << level < SCHEME_THREADS; level++)
            for (unsigned t = 0; t < SCHEME_THREADS; t += 2u << level)
                v[t] = device_crc64_join(&tables, v[t], v[t + (1u << level)], level);
        sum ^= device_crc64_block(&tables, &r, b, v[0]);
    }
    return sum;
}

static void check(const unsigned char *data, uint64_t bytes) {
    if (by_scheme(data, bytes) != core_crc64_raw(0, data, bytes))
        fail_msg("%llu bytes at address %% 8 = %u", (unsigned long long)bytes,
                 (unsigned)((uintptr_t)data % 8));
}

static void the_header_example(void **state) {
    (void)state;
    assert_int_equal(by_scheme("123456789", 9), 0x2b9c7ee4e2780c8aULL);
}

static void short_ranges_anywhere(void **state) {
    (void)state;
    unsigned char *data = any_bytes(256);
    for (uint64_t from = 0; from < 17; from++)
        for (uint64_t bytes = 0; bytes < 200; bytes++) check(data + from, bytes);
    free(data);
}

/* Around the edges of one, two and more blocks. */
static void edges_of_blocks(void **state) {
    (void)state;
    const uint64_t block = 8 * SCHEME_WORDS, ends[] = {block, 2 * block, 5 * block};
    unsigned char *data = any_bytes(6 * block);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        for (uint64_t k = 0; k < 20; k++) {
            check(data + between(0, 9), ends[i] - 10 + k);
            check(data + between(0, 9), between(ends[i] - block, ends[i]));
        }
    free(data);
}

/* Bytes around the range do not matter, those in it do. */
static void only_the_range_counts(void **state) {
    (void)state;
    unsigned char *data = any_bytes(4096);
    uint64_t before = by_scheme(data + 101, 3001);
    data[100] ^= 1;
    data[101 + 3001] ^= 1;
    assert_int_equal(by_scheme(data + 101, 3001), before);
    data[101] ^= 1;
    assert_int_not_equal(by_scheme(data + 101, 3001), before);
    free(data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_header_example),
        cmocka_unit_test(short_ranges_anywhere),
        cmocka_unit_test(edges_of_blocks),
        cmocka_unit_test(only_the_range_counts),
    };
    device_crc64_tables_fill(&tables);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
