/* CRC-64 in parts: however a message is cut, shifted and joined, its checksum is the same. */
#include "core/crc64.h"
#include "support/core_fixture.h"

#define MIB (1u << 20)

static void known_checksums(void **state) {
    (void)state;
    assert_int_equal(core_crc64("123456789", 9), 0x995dc9bbdf1939faULL);
    assert_int_equal(core_crc64("", 0), 0);
    static const unsigned char zeros[32];
    assert_int_equal(core_crc64_raw(0, zeros, sizeof zeros), 0);
}

/* Computes one bit at a time, as the polynomial defines it. */
static uint64_t crc64_by_bits(const unsigned char *data, uint64_t bytes) {
    uint64_t crc = ~0ULL;
    for (uint64_t i = 0; i < bytes; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (0xc96c5795d7870f42ULL & (0 - (crc & 1)));
    }
    return ~crc;
}

static void it_is_the_defined_checksum(void **state) {
    (void)state;
    for (int i = 0; i < 200; i++) {
        uint64_t bytes = between(0, 600);
        unsigned char *data = any_bytes(bytes);
        assert_int_equal(core_crc64(data, bytes), crc64_by_bits(data, bytes));
        free(data);
    }
}

static void a_shift_is_zeros_that_follow(void **state) {
    (void)state;
    static const uint64_t lengths[] = {0, 1, 7, 8, 4095, 4096, 4097, 65536, 5 * MIB + 3};
    unsigned char *zeros = calloc(5 * MIB + 3, 1);
    assert_non_null(zeros);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        uint64_t raw = any();
        assert_int_equal(core_crc64_shift(raw, lengths[i]), core_crc64_raw(raw, zeros, lengths[i]));
        assert_int_equal(core_crc64_shift(0, lengths[i]), 0);
    }
    free(zeros);
    /* too long for zeros in memory: shifts add up */
    for (int i = 0; i < 200; i++) {
        uint64_t raw = any(), a = any() >> between(1, 60), b = any() >> between(1, 60);
        assert_int_equal(core_crc64_shift(core_crc64_shift(raw, a), b),
                         core_crc64_shift(raw, a + b));
    }
}

static void parts_join_to_the_whole(void **state) {
    (void)state;
    for (int i = 0; i < 60; i++) {
        uint64_t bytes = i < 50 ? between(0, 20000) : between(4 * MIB, 5 * MIB), raw = 0;
        unsigned char *data = any_bytes(bytes);
        for (uint64_t at = 0, part; at < bytes; at += part) {
            part = between(1, bytes - at);
            raw ^= core_crc64_shift(core_crc64_raw(0, data + at, part), bytes - at - part);
        }
        assert_int_equal(core_crc64_finish(raw, bytes), core_crc64(data, bytes));
        free(data);
    }
}

/* At any position of both, and no byte beyond. */
static void a_copy_is_summed_on_the_way(void **state) {
    (void)state;
    for (int i = 0; i < 300; i++) {
        uint64_t bytes = between(0, i < 290 ? 20000 : MIB), from = between(0, 70);
        uint64_t to = between(1, 70), raw = any();
        unsigned char *data = any_bytes(from + bytes), *copy = malloc(to + bytes + 1);
        assert_non_null(copy);
        copy[to - 1] = copy[to + bytes] = 0xa5;
        assert_int_equal(core_crc64_copy(raw, copy + to, data + from, bytes),
                         core_crc64_raw(raw, data + from, bytes));
        assert_memory_equal(copy + to, data + from, bytes);
        assert_int_equal(copy[to - 1], 0xa5);
        assert_int_equal(copy[to + bytes], 0xa5);
        free(copy);
        free(data);
    }
}

static void finish_and_unfinish_are_opposites(void **state) {
    (void)state;
    for (int i = 0; i < 200; i++) {
        uint64_t raw = any(), bytes = any() >> between(1, 63);
        assert_int_equal(core_crc64_unfinish(core_crc64_finish(raw, bytes), bytes), raw);
    }
    assert_int_equal(core_crc64_finish(0, 0), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_checksums),
        cmocka_unit_test(it_is_the_defined_checksum),
        cmocka_unit_test(a_shift_is_zeros_that_follow),
        cmocka_unit_test(parts_join_to_the_whole),
        cmocka_unit_test(a_copy_is_summed_on_the_way),
        cmocka_unit_test(finish_and_unfinish_are_opposites),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
