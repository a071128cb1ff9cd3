/* Messages are one line that fits; one that is too long because of paths keeps its beginning and
 * its reason. Values that programs query are members. */
#include "core/fail.h"

#include <errno.h>

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
        assert_int_not_equal(gap[3] & 0xc0, 0x80); /* not followed by half a character */
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

/* Members of an error that was not initialized are cleared. */
static void members_are_set(void **state) {
    (void)state;
    static char path[8000];
    dcp_error err, outer;
    memset(path, 'p', sizeof path - 1);
    memset(&err, 0x55, sizeof err);
    errno = ENOSPC;
    assert_int_equal(core_fail_errno(&err, "write", path), DCP_ERR_NO_SPACE);
    assert_int_equal(err.system_error, ENOSPC);
    assert_int_equal(strlen(err.path), sizeof err.path - 1);
    assert_string_equal(err.tensor, "");
    assert_true(err.offset == UINT64_MAX && err.n_ranks == 0 && err.rank == -1);
    assert_int_equal(err.reserved[0] | err.reserved[sizeof err.reserved - 1], 0);
    core_fail_tensor(core_fail_at(&err, DCP_ERR_CORRUPT, "/a/file", "block %d", 3), "/t", &err);
    assert_string_equal(err.message, "/a/file: block 3");
    assert_string_equal(err.path, "/a/file");
    assert_int_equal(err.system_error, 0);
    core_fail_again(&outer, DCP_ERR_IO, &err, "step 5: %s", err.message);
    assert_string_equal(outer.message, "step 5: /a/file: block 3");
    assert_string_equal(outer.tensor, "/t");
    outer.rank = 2;
    assert_int_equal(core_fail_add(DCP_ERR_IO, &outer, "; mend %s", outer.path), DCP_ERR_IO);
    assert_string_equal(outer.message, "step 5: /a/file: block 3; mend /a/file");
    assert_true(outer.rank == 2 && outer.status == DCP_ERR_IO && !strcmp(outer.path, "/a/file"));
    core_fail(&outer, DCP_ERR_ARG, "%s is none", outer.path);
    assert_string_equal(outer.message, "/a/file is none");
    assert_string_equal(outer.path, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_paths_leave_the_reason),
        cmocka_unit_test(short_messages_stay),
        cmocka_unit_test(members_are_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
