/* An identity is random or does not exist: if the system provides no random numbers, a store is not
 * opened. */
#include "core/system.h"

#include <errno.h>
#include <sys/random.h>

#include "support/store_fixture.h"

static int interrupted, refused; /* how often, and errno */

ssize_t __real_getrandom(void *out, size_t bytes, unsigned flags);
ssize_t __wrap_getrandom(void *out, size_t bytes, unsigned flags);

ssize_t __wrap_getrandom(void *out, size_t bytes, unsigned flags) {
    if (interrupted > 0) return interrupted--, errno = EINTR, -1;
    return refused ? errno = refused, -1 : __real_getrandom(out, bytes, flags);
}

static void an_interruption_is_none(void **state) {
    uint64_t numbers[2] = {0};
    (void)state;
    interrupted = 3;
    assert_int_equal(core_entropy(&numbers[0], NULL), DCP_OK);
    assert_int_equal(interrupted, 0);
    assert_int_equal(core_entropy(&numbers[1], NULL), DCP_OK);
    assert_true(numbers[0] != numbers[1]);
}

static void without_random_numbers_no_store_is_opened(void **state) {
    struct scratch *s = *state;
    dcp_store *store = NULL;
    dcp_error err = {0};
    refused = ENOSYS;
    assert_int_equal(dcp_store_open(s->comm, s->dir, NULL, &store, &err), DCP_ERR_IO);
    refused = 0;
    assert_null(store);
    assert_int_equal(err.system_error, ENOSYS);
    assert_non_null(strstr(err.message, "getrandom"));
    dcp_store_close(open_store(s, 0, 0));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_interruption_is_none),
        scratch_test(without_random_numbers_no_store_is_opened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
