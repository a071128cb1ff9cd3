/* The user block: it is read back unchanged, and each flipped bit of it is damage. */
#include "core/bytes.h"
#include "core/crc64.h"
#include "format/index.h"
#include "support/core_fixture.h"

#define FILE_BYTES (1ULL << 20)

static const format_userblock good = {.layout = DCP_LAYOUT_SHARDED,
                                      .file_bytes = FILE_BYTES,
                                      .rows = 3,
                                      .row_bytes = 260,
                                      .index = {8192, 780, 0x1111},
                                      .blocks = {12288, 24, 0x2222},
                                      .meta = {65536, 65536, 0x3333},
                                      .outside_crc = 0x4444};

static void it_comes_back(void **state) {
    (void)state;
    unsigned char block[USERBLOCK_BYTES];
    format_userblock back;
    memset(block, 0xaa, sizeof block);
    format_userblock_encode(&good, block);
    assert_int_equal(format_userblock_decode(block, FILE_BYTES, "file", &back, NULL), DCP_OK);
    assert_int_equal(back.layout, good.layout);
    assert_int_equal(back.file_bytes, good.file_bytes);
    assert_int_equal(back.rows, good.rows);
    assert_int_equal(back.row_bytes, good.row_bytes);
    assert_memory_equal(&back.index, &good.index, sizeof good.index);
    assert_memory_equal(&back.blocks, &good.blocks, sizeof good.blocks);
    assert_memory_equal(&back.meta, &good.meta, sizeof good.meta);
    assert_int_equal(back.outside_crc, good.outside_crc);
}

static void every_flipped_bit_is_damage(void **state) {
    (void)state;
    unsigned char block[USERBLOCK_BYTES];
    format_userblock back;
    format_userblock_encode(&good, block);
    for (size_t bit = 0; bit < 8 * sizeof block; bit++) {
        dcp_error err = {0};
        block[bit / 8] = (unsigned char)(block[bit / 8] ^ 1 << bit % 8);
        assert_int_equal(format_userblock_decode(block, FILE_BYTES, "file", &back, &err),
                         DCP_ERR_CORRUPT);
        assert_non_null(strstr(err.message, "file: user block: "));
        block[bit / 8] = (unsigned char)(block[bit / 8] ^ 1 << bit % 8);
    }
    assert_int_equal(format_userblock_decode(block, FILE_BYTES, "file", &back, NULL), DCP_OK);
}

static void a_file_of_another_size_is_damage(void **state) {
    (void)state;
    unsigned char block[USERBLOCK_BYTES];
    format_userblock back;
    dcp_error err = {0};
    format_userblock_encode(&good, block);
    for (int d = -1; d <= 1; d += 2) {
        assert_int_equal(format_userblock_decode(block, (uint64_t)((int64_t)FILE_BYTES + d), "file",
                                                 &back, &err),
                         DCP_ERR_CORRUPT);
        assert_non_null(strstr(err.message, "size"));
    }
}

/* With a correct checksum: what a hostile writer could make. */
static void expect_forged(const format_userblock *ub, const char *part) {
    unsigned char block[USERBLOCK_BYTES];
    format_userblock back;
    dcp_error err = {0};
    format_userblock_encode(ub, block);
    assert_int_equal(format_userblock_decode(block, ub->file_bytes, "file", &back, &err),
                     DCP_ERR_CORRUPT);
    if (!strstr(err.message, part)) fail_msg("'%s' is not in: %s", part, err.message);
}

static void ranges_outside_the_file_are_damage(void **state) {
    (void)state;
    static const format_range bad[] = {
        {0, 780, 0},           {FILE_BYTES - 512, 780, 0},
        {FILE_BYTES, 780, 0},  {FILE_BYTES + 4096, 0, 0},
        {8193, 780, 0},        {UINT64_MAX - 4095, 780, 0},
        {8192, UINT64_MAX, 0}, {8192, UINT64_MAX - 8191, 0},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        for (int table = 0; table < 3; table++) {
            format_userblock ub = good;
            *(table == 0 ? &ub.index : table == 1 ? &ub.blocks : &ub.meta) = bad[i];
            if (table == 0) ub.rows = 1, ub.row_bytes = bad[i].bytes;
            if (table == 1 && bad[i].bytes == 780) ub.blocks.bytes = 776;
            expect_forged(&ub, "file: user block: ");
        }
}

static void sizes_that_contradict_are_damage(void **state) {
    (void)state;
    format_userblock ub = good;
    ub.rows = 4;
    expect_forged(&ub, "size of its rows");
    ub = good;
    ub.rows = 780ULL << 56, ub.row_bytes = 1ULL << 56; /* wraps */
    ub.index.bytes = 0;
    expect_forged(&ub, "size of its rows");
    ub = good;
    ub.blocks.bytes = 23;
    expect_forged(&ub, "the blocks table does not have the size of what it covers");
    ub = good;
    ub.layout = (dcp_layout)2;
    expect_forged(&ub, "layout");
    ub = good;
    ub.blocks.offset = ub.index.offset;
    expect_forged(&ub, "tables overlap");
}

/* A sparse file can have any size; what is read of it at once is bounded by what honest files
 * have. */
static void sizes_beyond_any_file_are_damage(void **state) {
    (void)state;
    format_userblock ub = good;
    ub.file_bytes = 1ULL << 62;
    expect_forged(&ub, "no file is that large");
    ub.file_bytes = 1ULL << 47;
    ub.rows = MAX_ROWS + 1;
    ub.index = (format_range){1ULL << 46, ub.rows * 260, 0};
    expect_forged(&ub, "no index has that many rows");
    ub = good;
    ub.file_bytes = 1ULL << 47;
    ub.meta.bytes = MAX_META_BYTES + 1;
    expect_forged(&ub, "no meta is that large");
    ub = good;
    ub.file_bytes = 1ULL << 30;
    ub.blocks = (format_range){1 << 20, 8 * (256 + 3 + 1), 0};
    expect_forged(&ub, "the blocks table does not have the size of what it covers");
}

static void what_is_not_used_is_zero(void **state) {
    (void)state;
    for (size_t at = 120; at < USERBLOCK_BYTES - 8; at += 13) {
        unsigned char block[USERBLOCK_BYTES];
        format_userblock back;
        dcp_error err = {0};
        format_userblock_encode(&good, block);
        block[at] = 1;
        core_put_u64(block + USERBLOCK_BYTES - 8, core_crc64(block, USERBLOCK_BYTES - 8));
        assert_int_equal(format_userblock_decode(block, FILE_BYTES, "file", &back, &err),
                         DCP_ERR_CORRUPT);
        assert_non_null(strstr(err.message, "should be zero"));
    }
}

static void a_newer_format_is_told_apart(void **state) {
    (void)state;
    unsigned char block[USERBLOCK_BYTES];
    format_userblock back;
    dcp_error err = {0};
    format_userblock_encode(&good, block);
    core_put_u32(block + 8, FORMAT_VERSION + 1);
    core_put_u64(block + USERBLOCK_BYTES - 8, core_crc64(block, USERBLOCK_BYTES - 8));
    assert_int_equal(format_userblock_decode(block, FILE_BYTES, "file", &back, &err),
                     DCP_ERR_VERSION);
    assert_non_null(strstr(err.message, "version 2"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_comes_back),
        cmocka_unit_test(every_flipped_bit_is_damage),
        cmocka_unit_test(a_file_of_another_size_is_damage),
        cmocka_unit_test(ranges_outside_the_file_are_damage),
        cmocka_unit_test(sizes_that_contradict_are_damage),
        cmocka_unit_test(sizes_beyond_any_file_are_damage),
        cmocka_unit_test(what_is_not_used_is_zero),
        cmocka_unit_test(a_newer_format_is_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
