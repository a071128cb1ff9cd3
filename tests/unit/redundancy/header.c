/* The header of a redundancy file: it has the documented bytes, is read back unchanged, and
 * impossible values are refused although the checksum is correct. */
#include "core/bytes.h"
#include "core/crc64.h"
#include "format/index.h"
#include "redundancy/parity.h"
#include "support/core_fixture.h"

static parity_header three_members(redundancy_kind kind) {
    return (parity_header){.group = {kind, 3, 1},
                           .member = 1,
                           .world = 8,
                           .step = 120,
                           .set = 0x1122334455667788,
                           .table_crc = 99,
                           .members = {{2, 10000, 11}, {5, 0, 12}, {7, 8193, 13}}};
}

static void it_has_the_documented_bytes(void **state) {
    (void)state;
    unsigned char page[PAGE_BYTES];
    parity_header h = three_members(REDUNDANCY_RS);
    redundancy_parity_header_encode(&h, page);
    assert_memory_equal(page,
                        "\x89"
                        "DCR\r\n\x1a\n",
                        8);
    static const struct {
        int offset;
        uint64_t value;
    } u32[] = {{8, 1}, {12, 2}, {16, 3}, {20, 1}, {24, 1}, {28, 8}},
      u64[] = {{32, 120},  {40, 0x1122334455667788},
               {48, 8192}, {56, 99},
               {256, 2},   {264, 10000},
               {272, 11},  {280, 5},
               {304, 7},   {312, 8193}};
    for (size_t i = 0; i < sizeof u32 / sizeof *u32; i++)
        assert_int_equal(core_get_u32(page + u32[i].offset), u32[i].value);
    for (size_t i = 0; i < sizeof u64 / sizeof *u64; i++)
        assert_int_equal(core_get_u64(page + u64[i].offset), u64[i].value);
    for (int i = 328; i < 4088; i++) assert_int_equal(page[i], 0);
    assert_int_equal(core_get_u64(page + 4088), core_crc64(page, 4088));
}

static void lengths_follow_from_the_members(void **state) {
    (void)state;
    parity_header h = three_members(REDUNDANCY_RS);
    assert_int_equal(redundancy_parity_strip_bytes(&h, 0), 8192); /* 10,000 / 2 in pages */
    assert_int_equal(redundancy_parity_file_bytes(&h, 1), 4096 + 4096 + 8192);
    h.members[2].bytes = 1 << 30;
    assert_int_equal(redundancy_parity_file_bytes(&h, 1), 4096 + 4096 + (1 << 29));
    h = three_members(REDUNDANCY_PARTNER);
    assert_int_equal(redundancy_parity_payload_bytes(&h, 0), 12288); /* the last member's 8,193 */
    assert_int_equal(redundancy_parity_payload_bytes(&h, 1), 12288);
    assert_int_equal(redundancy_parity_payload_bytes(&h, 2), 0);
    assert_int_equal(redundancy_parity_payload_start(&h, 2), 4096);
}

static void it_comes_back(void **state) {
    (void)state;
    unsigned char page[PAGE_BYTES];
    for (redundancy_kind kind = REDUNDANCY_PARTNER; kind <= REDUNDANCY_RS; kind++) {
        parity_header h = three_members(kind), back;
        redundancy_parity_header_encode(&h, page);
        assert_int_equal(redundancy_parity_header_decode(page, "file", &back, NULL), DCP_OK);
        assert_memory_equal(&back, &h, sizeof h);
    }
}

static void refuse(const unsigned char *page, int status) {
    parity_header h;
    dcp_error err = {0};
    assert_int_equal(redundancy_parity_header_decode(page, "some/file", &h, &err), status);
    assert_non_null(strstr(err.message, "some/file: "));
}

static void nothing_impossible_is_believed(void **state) {
    (void)state;
    unsigned char page[PAGE_BYTES];
    static const struct {
        int offset, bytes;
        uint64_t value;
        int status;
    } bad[] = {
        {8, 4, 2, DCP_ERR_VERSION},           {12, 4, 0, DCP_ERR_CORRUPT},
        {12, 4, 3, DCP_ERR_CORRUPT},          {16, 4, 1, DCP_ERR_CORRUPT},
        {16, 4, 65, DCP_ERR_CORRUPT},         {16, 4, 0xffffffff, DCP_ERR_CORRUPT},
        {20, 4, 0, DCP_ERR_CORRUPT},          {20, 4, 3, DCP_ERR_CORRUPT},
        {20, 4, 0x80000000, DCP_ERR_CORRUPT}, {24, 4, 3, DCP_ERR_CORRUPT},
        {24, 4, 0xffffffff, DCP_ERR_CORRUPT}, {28, 4, 2, DCP_ERR_CORRUPT},
        {28, 4, 0x7fffffff, DCP_ERR_CORRUPT}, {28, 4, 0xffffffff, DCP_ERR_CORRUPT},
        {48, 8, 4096, DCP_ERR_CORRUPT},       {256, 8, 5, DCP_ERR_CORRUPT},
        {256, 8, 8, DCP_ERR_CORRUPT},         {256, 8, ~0ULL, DCP_ERR_CORRUPT},
        {264, 8, ~0ULL, DCP_ERR_CORRUPT},     {264, 8, 1ULL << 57, DCP_ERR_CORRUPT},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        parity_header h = three_members(REDUNDANCY_RS);
        redundancy_parity_header_encode(&h, page);
        if (bad[i].bytes == 4)
            core_put_u32(page + bad[i].offset, (uint32_t)bad[i].value);
        else
            core_put_u64(page + bad[i].offset, bad[i].value);
        refuse(page, DCP_ERR_CORRUPT); /* because of its checksum */
        core_put_u64(page + 4088, core_crc64(page, 4088));
        refuse(page, bad[i].status);
    }
    parity_header h = three_members(REDUNDANCY_PARTNER);
    h.group.lost = 2;
    redundancy_parity_header_encode(&h, page);
    refuse(page, DCP_ERR_CORRUPT);
}

static void only_its_names_are_names(void **state) {
    (void)state;
    static const char *const bad[] = {
        "shard-00002-of-00008.h5x",
        "shard-2-of-8.h5",
        "shard-00008-of-00008.h5",
        "shard-00000-of-00000.h5",
        "parity-00002-of-00008.h5",
        "partner-00002-of-00008",
        "shard--0001-of-00008.h5",
        "other-00002-of-00008.bin",
        "shard-00002-of-00008.bin",
        "",
        "state.h5",
    };
    redundancy_kind kind;
    uint64_t number;
    int world;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(redundancy_parity_name_read(bad[i], &kind, &number, &world));
    assert_true(redundancy_parity_name_read("shard-00002-of-00008.h5", &kind, &number, &world));
    assert_true(kind == REDUNDANCY_NONE && number == 2 && world == 8);
    assert_true(redundancy_parity_name_read("parity-99999-of-100000.bin", &kind, &number, &world));
    assert_true(kind == REDUNDANCY_RS && number == 99999 && world == 100000);
    assert_true(redundancy_parity_name_read("partner-00000-of-00001.bin", &kind, &number, &world));
    assert_true(kind == REDUNDANCY_PARTNER && number == 0 && world == 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_has_the_documented_bytes),
        cmocka_unit_test(lengths_follow_from_the_members),
        cmocka_unit_test(it_comes_back),
        cmocka_unit_test(nothing_impossible_is_believed),
        cmocka_unit_test(only_its_names_are_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
