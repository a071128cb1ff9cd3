/* Messages are one line that fits; one that long paths make too long keeps its beginning and its
 * reason. */
#include "core/fail.h"
#include "support/core_fixture.h"

static void long_paths_leave_the_reason(void **state) {
    (void)state;
    static char path[4000], tensor[DCP_MAX_PATH + 1];
    memset(path, 'p', sizeof path - 1);
    for (size_t i = 0; i + 1 < DCP_MAX_PATH; i += 2) memcpy(tensor + i, "\xc3\xa9", 2);
    for (size_t room = 1; room < sizeof path; room += 7) {
        dcp_error err = {0};
        path[room] = 0;
        assert_int_equal(
            core_fail(&err, DCP_ERR_CORRUPT, "read %s: tensor %s, block 3: damaged", path, tensor),
            DCP_ERR_CORRUPT);
        path[room] = 'p';
        size_t length = strlen(err.message);
        assert_true(length < sizeof err.message && length + 16 > sizeof err.message);
        assert_memory_equal(err.message, "read p", 6);
        assert_string_equal(err.message + length - 16, "block 3: damaged");
        const char *gap = strstr(err.message, "...");
        assert_non_null(gap);
        assert_int_not_equal(gap[3] & 0xc0, 0x80); /* no half character after it */
        assert_int_not_equal((unsigned char)gap[-1], 0xc3);
    }
}

static void short_messages_stay(void **state) {
    (void)state;
    dcp_error err = {0};
    char fits[sizeof err.message];
    memset(fits, 'x', sizeof fits - 1);
    fits[sizeof fits - 1] = 0;
    core_fail(&err, DCP_ERR_ARG, "%s", fits);
    assert_string_equal(err.message, fits);
    core_fail(&err, DCP_ERR_ARG, "a\nb %d", 3);
    core_fail(&err, DCP_ERR_IO, "again: %s", err.message);
    assert_string_equal(err.message, "again: a?b 3");
    assert_int_equal(err.status, DCP_ERR_IO);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_paths_leave_the_reason),
        cmocka_unit_test(short_messages_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
