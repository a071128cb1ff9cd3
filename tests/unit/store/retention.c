/* Which steps are kept: `keep`, the newest intact one, and how long abandoned ones exist. */
#include "store/retention.h"
#include <errno.h>
#include <sys/syscall.h>

#include "core/crc64.h"
#include "store/publication.h"
#include "support/store_fixture.h"

static const char *unread_file; /* it cannot be opened; NULL: none */

/* Replaces the C library's function. */
int openat(int folder, const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    const unsigned mode = flags & O_CREAT ? va_arg(args, unsigned) : 0;
    va_end(args);
    if (!unread_file || strcmp(path, unread_file))
        return (int)syscall(SYS_openat, folder, path, flags, mode);
    errno = EIO;
    return -1;
}

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

static void make_foreign(const struct scratch *s, uint64_t step) {
    char path[200];
    snprintf(path, sizeof path, "%s/step-%08d", s->dir, (int)step);
    assert_int_equal(mkdir(path, 0777), 0);
    strcat(path, "/notes.txt");
    write_text(path, "mine");
}

/* A folder with somebody else's files does not count for `keep`, and is neither removed, set aside
 * nor replaced. */
static void a_folder_of_somebody_else_stays(void **state) {
    struct scratch *s = *state;
    for (int replace = 0; replace < 2; replace++) {
        dcp_error err = {0};
        dcp_store *store = open_store(s, 2, replace);
        publish_all(store, 1, 2);
        make_foreign(s, 3);
        make_foreign(s, 6);
        publish_all(store, 4, 5);
        assert_steps(s, "c4 c5");
        assert_int_equal(publish(store, 6, "new", &err), DCP_ERR_STATE);
        assert_non_null(strstr(err.message, "step-00000006 has none of the files of a step"));
        assert_int_equal(dcp_step_remove(store, 6, &err), DCP_ERR_NOT_FOUND);
        publish_all(store, 7, 8);
        assert_steps(s, "c7 c8");
        assert_int_equal(dcp_store_continue_from(store, 2, NULL), DCP_OK);
        assert_int_equal(publish(store, 3, "new", &err), DCP_ERR_STATE);
        publish_all(store, 9, 9);
        assert_steps(s, "a7 a8 c9");
        assert_content(s, "step-00000003/notes.txt", "mine");
        assert_content(s, "step-00000006/notes.txt", "mine");
        dcp_store_close(store);
        store = open_store(s, 2, replace);
        assert_non_null(strstr(s->log, "/step-00000003 has none of the files of a step: "));
        dcp_store_close(store);
        assert_int_equal(store_directory_remove(AT_FDCWD, s->dir), 0);
        *s->log = '\0';
    }
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

/* Opens the store with the policies in `o`. */
static dcp_store *open_with(struct scratch *s, dcp_store_options o) {
    dcp_store *store = NULL;
    dcp_error err = {0};
    o.size = sizeof o, o.log = keep_line, o.log_ctx = s;
    if (dcp_store_open(s->comm, s->dir, &o, &store, &err) != DCP_OK) fail_msg("%s", err.message);
    return store;
}

/* Publishes a step with the given members in its about.json. */
static void publish_members(dcp_store *store, uint64_t step, const char *members) {
    char tmp[PATH_MAX];
    assert_int_equal(store_begin(store, step, tmp, NULL), DCP_OK);
    assert_int_equal(finish_and_publish(store, step, members, NULL), DCP_OK);
}

static void multiples_stay(void **state) {
    struct scratch *s = *state;
    dcp_store *store = open_with(s, (dcp_store_options){.keep = 2, .keep_every = 4});
    publish_all(store, 1, 13);
    assert_steps(s, "c4 c8 c12 c13");
    dcp_store_close(store);
}

static void the_best_steps_stay(void **state) {
    struct scratch *s = *state;
    dcp_store *store =
        open_with(s, (dcp_store_options){.keep = 1, .keep_best = 2, .keep_metric = "loss"});
    publish_members(store, 1, "{\"loss\": 3}");
    publish_members(store, 2, "{\"loss\": 1.5}");
    publish_members(store, 3, "{\"loss\": \"0\"}"); /* no number */
    publish_members(store, 4, "{\"loss\": 2.5, \"other\": 0}");
    publish_members(store, 5, NULL);
    assert_steps(s, "c2 c4 c5");
    publish_members(store, 6, "{\"loss\": 2.5}"); /* of equal ones the newer one stays */
    publish_members(store, 7, NULL);
    assert_steps(s, "c2 c6 c7");
    publish_members(store, 8, "{\"loss\": -1}");
    publish_members(store, 9, "{\"loss\": 9}");
    assert_steps(s, "c2 c8 c9");
    dcp_store_close(store);
    store = open_with(s, (dcp_store_options){
                             .keep = 1, .keep_best = 1, .keep_metric = "loss", .keep_highest = 1});
    publish_members(store, 10, "{\"loss\": 4}");
    assert_steps(s, "c9 c10");
    dcp_store_close(store);
}

/* Sets the time in the step's about.json, and its checksum. */
static void set_time(const struct scratch *s, uint64_t step, const char *time) {
    char path[200], text[4096] = "", digits[17];
    snprintf(path, sizeof path, "%s/step-%08llu/about.json", s->dir, (unsigned long long)step);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    fclose(file);
    memcpy(strstr(text, "\"time\": \"") + 9, time, strlen(time));
    char *sum = strstr(text, "\"crc64\": \"") + 10;
    memcpy(sum, "0000000000000000", 16);
    snprintf(digits, sizeof digits, "%016llx", (unsigned long long)core_crc64(text, strlen(text)));
    memcpy(sum, digits, 16);
    write_text(path, text);
}

static void steps_far_apart_in_time_stay(void **state) {
    static const char *const times[] = {"2026-01-01T00:00:00Z", "2026-01-01T00:59:59Z",
                                        "2026-01-01T01:00:00Z", "2026-01-01T01:59:59Z",
                                        "2026-01-01T03:30:00Z", "2026-01-01T04:00:00Z"};
    struct scratch *s = *state;
    dcp_store *store = open_store(s, 0, 0);
    publish_all(store, 1, 6);
    dcp_store_close(store);
    for (uint64_t step = 1; step <= 6; step++) set_time(s, step, times[step - 1]);
    store = open_with(s, (dcp_store_options){.keep = 1, .keep_seconds = 3600});
    assert_int_equal(retain_after(store, 6), DCP_OK);
    assert_steps(s, "c1 c3 c5 c6");
    assert_int_equal(retain_after(store, 6), DCP_OK); /* the same again */
    assert_steps(s, "c1 c3 c5 c6");
    dcp_store_close(store);
}

/* A damaged about.json has no value. One that cannot be read may have the best. */
static void a_step_whose_value_is_unread_stays(void **state) {
    struct scratch *s = *state;
    char path[200];
    dcp_store *store = open_store(s, 0, 0);
    for (uint64_t step = 1; step <= 4; step++) publish_members(store, step, "{\"loss\": 1}");
    dcp_store_close(store);
    snprintf(path, sizeof path, "%s/step-00000001/about.json", s->dir);
    write_text(path, "damaged");
    snprintf(path, sizeof path, "%s/step-00000002/about.json", s->dir);
    unread_file = path;
    store = open_with(s, (dcp_store_options){.keep = 1, .keep_best = 1, .keep_metric = "loss"});
    assert_int_equal(retain_after(store, 4), DCP_OK);
    unread_file = NULL;
    assert_steps(s, "c2 c4");
    assert_non_null(strstr(s->log, "an old step stays: "));
    assert_int_equal(retain_after(store, 4), DCP_OK); /* now 2 has only the value that 4 has, too */
    assert_steps(s, "c4");
    dcp_store_close(store);
}

/* While it can't be looked into, such a folder counts as a step. */
static void a_folder_that_cannot_be_looked_into_stays(void **state) {
    struct scratch *s = *state;
    dcp_store *store = open_store(s, 0, 0);
    publish_all(store, 2, 4);
    make_foreign(s, 1);
    dcp_store_close(store);
    store = open_with(s, (dcp_store_options){.keep = 2});
    unread_file = "step-00000001";
    assert_steps(s, "c1 c2 c3 c4");
    assert_int_equal(retain_after(store, 4), DCP_OK);
    unread_file = NULL;
    assert_non_null(strstr(s->log, "an old step stays: cannot open "));
    assert_content(s, "step-00000001/notes.txt", "mine");
    assert_steps(s, "c3 c4");
    dcp_store_close(store);
}

static void policies_without_effect_are_refused(void **state) {
    struct scratch *s = *state;
    const struct {
        dcp_store_options options;
        const char *says;
    } cases[] = {
        {{.keep_every = 5}, "set keep to the number of newest steps"},
        {{.keep_seconds = 5}, "set keep to the number of newest steps"},
        {{.keep_best = 5, .keep_metric = "loss"}, "set keep to the number of newest steps"},
        {{.keep = 1, .keep_best = 5}, "keep_best 5 needs keep_metric"},
        {{.keep = 1, .keep_best = 5, .keep_metric = ""}, "keep_best 5 needs keep_metric"},
        {{.keep = 1, .keep_best = 5, .keep_metric = "\xff"}, "keep_metric is not UTF-8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dcp_store_options options = cases[i].options;
        dcp_store *store = NULL;
        dcp_error err = {0};
        options.size = sizeof options;
        assert_int_equal(dcp_store_open(s->comm, s->dir, &options, &store, &err), DCP_ERR_ARG);
        assert_non_null(strstr(err.message, cases[i].says));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        scratch_test(keep_counts_complete_steps),
        scratch_test(zero_keeps_all),
        scratch_test(the_newest_intact_step_stays),
        scratch_test(nothing_goes_for_newer_steps_of_others),
        scratch_test(later_steps_go_aside_before_the_first_publication),
        scratch_test(what_is_no_folder_keeps_its_name),
        scratch_test(a_folder_of_somebody_else_stays),
        scratch_test(a_folder_that_cannot_be_looked_into_stays),
        scratch_test(from_the_start_means_all_steps),
        scratch_test(abandoned_steps_go_when_enough_newer_ones_stand),
        scratch_test(removal_does_not_follow_links),
        scratch_test(multiples_stay),
        scratch_test(the_best_steps_stay),
        scratch_test(steps_far_apart_in_time_stay),
        scratch_test(a_step_whose_value_is_unread_stays),
        scratch_test(policies_without_effect_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
