/* What is requested of Lustre: the layout byte for byte, what can be requested, and the default. */
#include "io/striping.h"

#include <string.h>
#include <sys/xattr.h>

#include "support/core_fixture.h"

#define MIB ((uint64_t)1 << 20)

static ssize_t own_layout = -1; /* of the folder: its bytes; -1: none */

ssize_t __wrap_getxattr(const char *path, const char *name, void *value, size_t size);
ssize_t __wrap_getxattr(const char *path, const char *name, void *value, size_t size) {
    (void)value, (void)size;
    assert_string_equal(path, "/folder");
    assert_string_equal(name, "lustre.lov");
    return own_layout;
}

static void a_layout_has_these_bytes(void **state) {
    (void)state;
    /* struct lov_user_md_v1: magic, pattern, lmm_oi, stripe size, stripe count, stripe offset */
    static const unsigned char four_mib[IO_STRIPING_LAYOUT_BYTES] = {
        0xd0, 0x0b, 0xd1, 0x0b, 0, 0, 0, 0, 0, 0, 0,    0, 0,    0, 0,    0,
        0,    0,    0,    0,    0, 0, 0, 0, 0, 0, 0x40, 0, 0x2c, 1, 0xff, 0xff};
    static const unsigned char all[IO_STRIPING_LAYOUT_BYTES] = {
        0xd0, 0x0b, 0xd1, 0x0b, 0, 0, 0, 0, 0, 0, 0,    0,    0,    0,    0,    0,
        0,    0,    0,    0,    0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    unsigned char bytes[IO_STRIPING_LAYOUT_BYTES];
    memset(bytes, 0xee, sizeof bytes);
    io_striping_encode(&(io_striping){300, 4 * MIB}, bytes);
    assert_memory_equal(bytes, four_mib, sizeof bytes);
    memset(bytes, 0xee, sizeof bytes);
    io_striping_encode(&(io_striping){IO_STRIPING_ALL, 0xffff0000}, bytes);
    assert_memory_equal(bytes, all, sizeof bytes);
}

static void only_what_can_be_is_taken(void **state) {
    (void)state;
    static const io_striping good[] = {{0, 0}, {-1, 0}, {1, 65536}, {2000, 0xffff0000}};
    static const io_striping bad[] = {{-2, 0},    {2001, 0}, {0, 1},
                                      {0, 65537}, {0, 4096}, {0, (uint64_t)1 << 32}};
    dcp_error err;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_int_equal(io_striping_check(&good[i], &err), DCP_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(io_striping_check(&bad[i], &err), DCP_ERR_ARG);
}

static void assert_chosen(io_striping asked, uint64_t file_bytes, uint64_t writers, int64_t count,
                          uint64_t bytes) {
    io_striping out;
    assert_int_equal(io_striping_choose(&asked, "/folder", file_bytes, writers, &out), 1);
    assert_int_equal(out.count, count);
    assert_int_equal(out.bytes, bytes);
}

static void the_default_goes_by_writers_and_size(void **state) {
    (void)state;
    const io_striping nothing = {0, 0};
    assert_chosen(nothing, 96000 * MIB, 256, 256, 4 * MIB);
    assert_chosen(nothing, 40 * MIB, 256, 10, 4 * MIB);
    assert_chosen(nothing, 40 * MIB + 1, 256, 11, 4 * MIB);
    assert_chosen(nothing, 96000 * MIB, 1, 1, 4 * MIB);
    assert_chosen(nothing, 0, 256, 1, 4 * MIB);
    assert_chosen(nothing, 9600000 * MIB, 8192, 2000, 4 * MIB);
    assert_chosen((io_striping){0, MIB}, 40 * MIB, 256, 40, MIB);
    assert_chosen((io_striping){7, 0}, 4 * MIB, 1, 7, 4 * MIB);
    assert_chosen((io_striping){IO_STRIPING_ALL, 0}, 4 * MIB, 1, -1, 4 * MIB);
}

/* Somebody has set it explicitly. */
static void a_folders_own_layout_stays_unless_asked(void **state) {
    (void)state;
    io_striping out;
    own_layout = 32;
    assert_int_equal(io_striping_choose(&(io_striping){0, 0}, "/folder", MIB, 4, &out), 0);
    assert_chosen((io_striping){0, MIB}, 9 * MIB, 4, 4, MIB);
    own_layout = -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_layout_has_these_bytes),
        cmocka_unit_test(only_what_can_be_is_taken),
        cmocka_unit_test(the_default_goes_by_writers_and_size),
        cmocka_unit_test(a_folders_own_layout_stays_unless_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
