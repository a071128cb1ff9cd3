/* Which steps are kept: `keep`, the newest intact one, and how long abandoned ones exist. */
#include "store/retention.h"
#include "store/publication.h"
#include "support/store_fixture.h"

static void keep_counts_complete_steps(void **state) {
    struct scratch *s = *state;
    dcp_store *store = open_store(s, 3, 0);
    publish_all(store, 1, 5);
    assert_steps(s, "c3 c4 c5");
    dcp_store_close(store);
}

static void zero_keeps_all(void **state) {
    struct scratch *s = *state;
    dcp_store *store = open_store(s, 0, 0);
    publish_all(store, 1, 5);
    assert_steps(s, "c1 c2 c3 c4 c5");
    dcp_store_close(store);
}

static void the_newest_intact_step_stays(void **state) {
    struct scratch *s = *state;
    dcp_store *store = open_store(s, 0, 0);
    publish_all(store, 1, 5);
    dcp_store_close(store);
    store = open_store(s, 2, 0);
    assert_int_equal(dcp_store_mark_intact(store, 2, NULL), DCP_OK);
    assert_int_equal(retain_after(store, 5), DCP_OK);
    assert_steps(s, "c2 c4 c5"); /* 4 and 5 may be damaged, 2 was loaded */
    publish_all(store, 6, 6);
    assert_steps(s, "c5 c6");
    dcp_store_close(store);
}

static void nothing_goes_for_newer_steps_of_others(void **state) {
    struct scratch *s = *state;
    dcp_store *store = open_store(s, 0, 0);
    publish_all(store, 10, 13);
    dcp_store_close(store);
    store = open_store(s, 2, 1);
    publish_all(store, 10, 11); /* they are replaced */
    assert_steps(s, "c10 c11 c12 c13");
    publish_all(store, 13, 14);
    assert_steps(s, "c13 c14");
    dcp_store_close(store);
}

static void later_steps_go_aside_before_the_first_publication(void **state) {
    struct scratch *s = *state;
    dcp_store *store = open_store(s, 0, 0);
    publish_all(store, 1, 6);
    assert_int_equal(dcp_store_continue_from(store, 3, NULL), DCP_OK);
    char tmp[PATH_MAX];
    assert_int_equal(store_begin(store, 3, tmp, NULL), DCP_ERR_STATE);
    assert_int_equal(store_begin(store, 4, tmp, NULL), DCP_OK);
    assert_steps(s, "c1 c2 c3 c4 p4 c5 c6"); /* nothing moved yet */
    store_rollback(store, 4);
    publish_all(store, 4, 4);
    assert_steps(s, "c1 c2 c3 c4 a4 a5 a6");
    assert_non_null(strstr(s->log, "step-00000006 is now .abandoned-step-00000006"));
    publish_all(store, 5, 7); /* only the first publication moves steps */
    assert_steps(s, "c1 c2 c3 c4 a4 c5 a5 c6 a6 c7");

    assert_int_equal(dcp_store_continue_from(store, 5, NULL), DCP_OK);
    publish_all(store, 6, 6);
    assert_steps(s, "c1 c2 c3 c4 a4 c5 a5 c6 a6 a6 a7");
    assert_true(has(s, ".abandoned-step-00000006.1"));
    dcp_store_close(store);
}

/* Only a folder can be a step, so neither is set aside; the store cannot know what they are. */
static void what_is_no_folder_keeps_its_name(void **state) {
    struct scratch *s = *state;
    dcp_store *store = open_store(s, 0, 0);
    char name[200], elsewhere[200], to[200];
    publish_all(store, 1, 4);
    snprintf(name, sizeof name, "%s/step-00000003", s->dir);
    snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere", s->root);
    assert_int_equal(rename(name, elsewhere), 0);
    for (int is_file = 0; is_file < 2; is_file++) {
        dcp_error err = {0};
        if (is_file)
            write_text(name, "mine");
        else
            assert_int_equal(symlink(elsewhere, name), 0);
        assert_int_equal(dcp_store_continue_from(store, 2, NULL), DCP_OK);
        assert_int_equal(publish(store, 3, "new", &err), DCP_ERR_STATE);
        assert_non_null(strstr(err.message, "step-00000003 is no folder"));
        assert_string_equal(err.path, name);
        if (is_file)
            assert_content(s, "step-00000003", "mine");
        else
            assert_int_equal(readlink(name, to, sizeof to), (int)strlen(elsewhere));
        assert_steps(s, "c1 c2 c4"); /* nothing went aside for a save that failed */
        assert_int_equal(unlink(name), 0);
    }
    publish_all(store, 3, 3);
    assert_steps(s, "c1 c2 c3 a4");
    dcp_store_close(store);
}

static void from_the_start_means_all_steps(void **state) {
    struct scratch *s = *state;
    dcp_store *store = open_store(s, 0, 0);
    publish_all(store, 2, 4);
    assert_int_equal(dcp_store_continue_from(store, 0, NULL), DCP_OK);
    publish_all(store, 3, 3);
    assert_steps(s, "a2 c3 a3 a4");
    dcp_store_close(store);
}

static void abandoned_steps_go_when_enough_newer_ones_stand(void **state) {
    struct scratch *s = *state;
    dcp_store *store = open_store(s, 2, 0);
    publish_all(store, 1, 3);
    assert_int_equal(dcp_store_continue_from(store, 1, NULL), DCP_OK);
    dcp_store_close(store);
    store = open_store(s, 2, 0);
    publish_all(store, 4, 4);
    assert_steps(s, "c3 c4");
    assert_int_equal(dcp_store_continue_from(store, 2, NULL), DCP_OK);
    publish_all(store, 3, 3);
    assert_steps(s, "c3 a3 a4"); /* they do not count for keep */
    publish_all(store, 4, 4);
    assert_steps(s, "c3 c4 a4"); /* 3 and 4 exist, both newer than what 3 was */
    publish_all(store, 5, 5);
    assert_steps(s, "c4 c5");
    dcp_store_close(store);
}

static void removal_does_not_follow_links(void **state) {
    struct scratch *s = *state;
    dcp_store *store = open_store(s, 1, 0);
    publish_all(store, 1, 1);
    char victim[200], path[300];
    snprintf(victim, sizeof victim, "%s/victim", s->root);
    assert_int_equal(mkdir(victim, 0777), 0);
    snprintf(path, sizeof path, "%s/precious", victim);
    write_text(path, "precious");
    snprintf(path, sizeof path, "%s/step-00000001/link", s->dir);
    assert_int_equal(symlink(victim, path), 0);
    snprintf(path, sizeof path, "%s/step-00000001/sub", s->dir);
    assert_int_equal(mkdir(path, 0777), 0);
    publish_all(store, 2, 2);
    assert_steps(s, "c2");
    snprintf(path, sizeof path, "%s/precious", victim);
    assert_int_equal(access(path, F_OK), 0);
    dcp_store_close(store);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        scratch_test(keep_counts_complete_steps),
        scratch_test(zero_keeps_all),
        scratch_test(the_newest_intact_step_stays),
        scratch_test(nothing_goes_for_newer_steps_of_others),
        scratch_test(later_steps_go_aside_before_the_first_publication),
        scratch_test(what_is_no_folder_keeps_its_name),
        scratch_test(from_the_start_means_all_steps),
        scratch_test(abandoned_steps_go_when_enough_newer_ones_stand),
        scratch_test(removal_does_not_follow_links),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
