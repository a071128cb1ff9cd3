/* Publication: what has a step's name is complete, what failed leaves nothing, what exists is
 * kept. */
#include "format/about.h"
#include "format/folder.h"
#include "store/publication.h"
#include "support/store_fixture.h"

#include <errno.h>
#include <sys/syscall.h>

static int broken_fd = -1; /* cannot be synced */

/* Replaces the C library's function. */
int fsync(int fd) {
    if (fd != broken_fd) return (int)syscall(SYS_fsync, fd);
    errno = EIO;
    return -1;
}

static void a_step_gets_its_name_when_published(void **state) {
    struct scratch *s = *state;
    dcp_store *store = open_store(s, 0, 0);
    char tmp[PATH_MAX], file[PATH_MAX + 16], link[64] = "", folder[200];
    assert_int_equal(store_begin(store, 120, tmp, NULL), DCP_OK);
    assert_steps(s, "p120");
    assert_true(has(s, ".tmp-step-00000120"));
    snprintf(file, sizeof file, "%s/state.h5", tmp);
    write_text(file, "bytes");
    assert_int_equal(finish_and_publish(store, 120, "{\"seconds\": 0.5}", NULL), DCP_OK);
    assert_steps(s, "c120");
    assert_content(s, "step-00000120/state.h5", "bytes");
    assert_content(s, "latest/state.h5", "bytes");
    snprintf(folder, sizeof folder, "%s/latest", s->dir);
    assert_true(readlink(folder, link, sizeof link - 1) > 0);
    assert_string_equal(link, "step-00000120");
    snprintf(folder, sizeof folder, "%s/step-00000120", s->dir);
    assert_int_equal(format_about_check(folder, NULL, NULL), DCP_OK);

    publish_all(store, 121, 121);
    assert_content(s, "latest/state.h5", "state");
    char newest[PATH_MAX];
    uint64_t step;
    assert_int_equal(format_list_newest(s->dir, newest, &step, NULL), DCP_OK);
    assert_int_equal(step, 121);
    assert_non_null(strstr(newest, "/step-00000121"));
    dcp_store_close(store);
}

static void a_step_that_exists_is_refused(void **state) {
    struct scratch *s = *state;
    dcp_store *store = open_store(s, 0, 0);
    publish_all(store, 7, 7);
    dcp_error err = {0};
    char tmp[PATH_MAX];
    assert_int_equal(store_begin(store, 7, tmp, &err), DCP_ERR_STATE);
    assert_non_null(strstr(err.message, "step-00000007 exists already"));
    assert_steps(s, "c7");
    dcp_store_close(store);
}

static void a_step_is_replaced_where_that_is_allowed(void **state) {
    struct scratch *s = *state;
    dcp_store *store = open_store(s, 0, 1);
    assert_int_equal(publish(store, 7, "old", NULL), DCP_OK);
    assert_int_equal(publish(store, 7, "new", NULL), DCP_OK);
    assert_content(s, "step-00000007/state.h5", "new");
    assert_steps(s, "c7");
    assert_false(has(s, ".trash-step-00000007"));
    assert_false(has(s, ".trash-.tmp-step-00000007"));
    dcp_store_close(store);
}

static void a_failed_save_leaves_nothing(void **state) {
    struct scratch *s = *state;
    dcp_store *store = open_store(s, 0, 0);
    publish_all(store, 1, 1);
    char tmp[PATH_MAX];
    assert_int_equal(store_begin(store, 2, tmp, NULL), DCP_OK);
    store_rollback(store, 2);
    assert_steps(s, "c1");
    publish_all(store, 2, 2);
    assert_steps(s, "c1 c2");

    /* A publication that fails: the folder is missing. */
    dcp_error err = {0};
    assert_int_equal(store_begin(store, 3, tmp, NULL), DCP_OK);
    assert_int_equal(rmdir(tmp), 0);
    assert_int_not_equal(finish_and_publish(store, 3, NULL, &err), DCP_OK);
    assert_non_null(strstr(err.message, ".tmp-step-00000003"));
    assert_steps(s, "c1 c2");
    dcp_store_close(store);
}

static void a_name_goes_back_where_it_is_not_durable(void **state) {
    struct scratch *s = *state;
    dcp_store *store = open_store(s, 0, 1);
    dcp_error err = {0};
    assert_int_equal(publish(store, 7, "old", NULL), DCP_OK);
    broken_fd = store->dir_fd;
    for (uint64_t step = 7; step <= 8; step++) {
        assert_int_equal(publish(store, step, "new", &err), DCP_ERR_IO);
        store_rollback(store, step);
        assert_steps(s, "c7");
        assert_content(s, "step-00000007/state.h5", "old");
    }
    broken_fd = -1;
    assert_int_equal(publish(store, 7, "new", NULL), DCP_OK);
    assert_content(s, "step-00000007/state.h5", "new");
    dcp_store_close(store);
}

static void latest_is_no_reason_to_fail(void **state) {
    struct scratch *s = *state;
    dcp_store *store = open_store(s, 0, 0);
    char path[200];
    snprintf(path, sizeof path, "%s/latest", s->dir);
    assert_int_equal(mkdir(path, 0777), 0);
    publish_all(store, 1, 1);
    assert_steps(s, "c1");
    assert_non_null(strstr(s->log, "latest"));
    assert_false(has(s, ".tmp-latest"));
    dcp_store_close(store);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        scratch_test(a_step_gets_its_name_when_published),
        scratch_test(a_step_that_exists_is_refused),
        scratch_test(a_step_is_replaced_where_that_is_allowed),
        scratch_test(a_failed_save_leaves_nothing),
        scratch_test(a_name_goes_back_where_it_is_not_durable),
        scratch_test(latest_is_no_reason_to_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
