/* A run that saves an older step than the newest has to declare that it went back: otherwise the
 * next start would continue from the newer one, and `keep` would remove what the run saves. */
#include "support/store_fixture.h"

static void an_older_step_is_refused(void **state) {
    struct scratch *s = *state;
    dcp_error err = {0};
    dcp_store *store = open_store(s, 2, 0);
    publish_all(store, 60, 60);
    publish_all(store, 70, 70);
    dcp_store_close(store);
    store = open_store(s, 2, 0);
    assert_int_equal(publish(store, 51, "state", &err), DCP_ERR_STATE);
    assert_non_null(strstr(err.message, "step 51 is older than step 70"));
    assert_non_null(strstr(err.message, "must call continue_from, which"));
    assert_int_equal(publish(store, 65, "state", &err), DCP_ERR_STATE);
    assert_steps(s, "c60 c70");
    publish_all(store, 71, 71);
    assert_steps(s, "c70 c71");
    dcp_store_close(store);
}

static void going_back_is_said(void **state) {
    struct scratch *s = *state;
    dcp_error err = {0};
    dcp_store *store = open_store(s, 2, 0);
    publish_all(store, 50, 50);
    publish_all(store, 60, 60);
    assert_int_equal(dcp_store_continue_from(store, 50, NULL), DCP_OK);
    assert_int_equal(publish(store, 49, "state", &err), DCP_ERR_STATE); /* 50 exists */
    assert_non_null(strstr(err.message, "step 49 is older than step 50"));
    publish_all(store, 51, 53);
    assert_steps(s, "c52 c53 a60");
    assert_int_equal(publish(store, 52, "state", &err), DCP_ERR_STATE); /* as before */
    dcp_store_close(store);
}

/* Tools put steps where they belong; steps made by a run are no reason to remove them. */
static void tools_may_save_older_steps(void **state) {
    struct scratch *s = *state;
    dcp_store *store = open_store(s, 0, 0);
    publish_all(store, 60, 62);
    dcp_store_close(store);
    dcp_store_options options = {.size = sizeof options, .keep = 2, .keep_latest = 1};
    assert_int_equal(dcp_store_open(s->comm, s->dir, &options, &store, NULL), DCP_OK);
    publish_all(store, 51, 53);
    assert_steps(s, "c51 c52 c53 c60 c61 c62");
    dcp_store_close(store);
    store = open_store(s, 2, 1);
    publish_all(store, 51, 52);
    assert_steps(s, "c51 c52 c53 c60 c61 c62");
    assert_content(s, "latest/state.h5", "state");
    char path[200], newest[64] = "";
    snprintf(path, sizeof path, "%s/latest", s->dir);
    assert_true(readlink(path, newest, sizeof newest - 1) > 0);
    assert_string_equal(newest, "step-00000062");
    dcp_store_close(store);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        scratch_test(an_older_step_is_refused),
        scratch_test(going_back_is_said),
        scratch_test(tools_may_save_older_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
