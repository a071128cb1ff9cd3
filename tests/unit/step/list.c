/* The list of steps: which names are steps, and their order. */
#include "format/folder.h"
#include "support/store_fixture.h"

static void make(const struct scratch *s, const char *name) {
    char path[300];
    snprintf(path, sizeof path, "%s/%s", s->dir, name);
    assert_int_equal(mkdir(path, 0777), 0);
}

static void names_count_only_as_they_are_made(void **state) {
    struct scratch *s = *state;
    static const char *const others[] = {
        "step-",
        "step-1",
        "step-0000001",
        "step-000000012",
        "step-0000000x",
        "step-00000001x",
        "step-00000001.1",
        "step--0000001",
        "step-+0000001",
        "step- 0000001",
        "xstep-00000001",
        ".tmp-step-00000001.1",
        ".temp-step-00000001",
        ".abandoned-step-00000001.",
        ".abandoned-step-00000001.0",
        ".abandoned-step-00000001.01",
        ".abandoned-step-00000001.1x",
        ".trash-step-00000001",
        "step-18446744073709551616",
        "step-99999999999999999999999999999",
        ".abandoned-step-00000001.1111111111111111111111111111111111111111111111111"};
    assert_int_equal(mkdir(s->dir, 0777), 0);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) make(s, others[i]);
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/step-00000002", s->dir);
    write_text(path, "a file is no step");
    snprintf(path, sizeof path, "%s/step-00000003", s->dir);
    assert_int_equal(symlink("step-", path), 0);
    assert_steps(s, "");
    make(s, "step-18446744073709551615");
    make(s, "step-123456789");
    assert_steps(s, "c123456789 c18446744073709551615");
    uint64_t step;
    assert_int_equal(format_list_newest(s->dir, path, &step, NULL), DCP_OK);
    assert_true(step == UINT64_MAX);
}

static void steps_ascend_complete_ones_first(void **state) {
    struct scratch *s = *state;
    assert_int_equal(mkdir(s->dir, 0777), 0);
    make(s, ".abandoned-step-00000010.1");
    make(s, "step-00000100");
    make(s, ".abandoned-step-00000010");
    make(s, ".tmp-step-00000010");
    make(s, "step-00000010");
    make(s, "step-00000009");
    make(s, "step-00000000");
    assert_steps(s, "c0 c9 c10 p10 a10 a10 c100");
    char path[PATH_MAX];
    uint64_t step;
    make(s, ".tmp-step-00000101");
    make(s, ".abandoned-step-00000102");
    assert_int_equal(format_list_newest(s->dir, path, &step, NULL), DCP_OK);
    assert_int_equal(step, 100);
}

static void put(const struct scratch *s, const char *name, const char *file) {
    char path[300];
    make(s, name);
    snprintf(path, sizeof path, "%s/%s/%s", s->dir, name, file);
    write_text(path, "text");
}

/* A node's part of a step may consist of any of these files. */
static void a_folder_of_somebody_else_is_no_step(void **state) {
    struct scratch *s = *state;
    static const char *const files[] = {"state.h5",
                                        "about.json",
                                        "shard-00001-of-00002.h5",
                                        "parity-00001-of-00002.bin",
                                        "partner-00001-of-00002.bin",
                                        ".tmp-shard-00001-of-00002.h5"};
    static const char *const others[] = {
        "notes.txt",        ".hidden", "about.json~", "step-00000001", "shard-00002-of-00002.h5",
        "model.safetensors"};
    char name[64], path[PATH_MAX];
    uint64_t step;
    dcp_error err = {0};
    assert_int_equal(mkdir(s->dir, 0777), 0);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        snprintf(name, sizeof name, "step-0000002%zu", i);
        put(s, name, others[i]);
    }
    assert_steps(s, "");
    assert_int_equal(format_list_newest(s->dir, path, &step, &err), DCP_ERR_NOT_FOUND);
    assert_non_null(strstr(err.message, "/step-00000025 has none of the files of a step"));
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(name, sizeof name, "step-0000001%zu", i);
        put(s, name, files[i]);
        snprintf(path, sizeof path, "%s/%s/notes.txt", s->dir, name);
        write_text(path, "beside it");
    }
    assert_steps(s, "c10 c11 c12 c13 c14 c15");
}

static void an_empty_or_missing_directory_has_no_step(void **state) {
    struct scratch *s = *state;
    char path[PATH_MAX];
    uint64_t step;
    dcp_error err = {0};
    assert_steps(s, "");
    assert_int_equal(format_list_newest(s->dir, path, &step, &err), DCP_ERR_NOT_FOUND);
    assert_int_equal(mkdir(s->dir, 0777), 0);
    assert_steps(s, "");
    make(s, ".tmp-step-00000101");
    assert_int_equal(format_list_newest(s->dir, path, &step, &err), DCP_ERR_NOT_FOUND);
    assert_non_null(strstr(err.message, "no complete step"));
    assert_null(strstr(err.message, "set aside"));
    make(s, ".abandoned-step-00000099");
    make(s, ".abandoned-step-00000102.1");
    assert_int_equal(format_list_newest(s->dir, path, &step, &err), DCP_ERR_NOT_FOUND);
    assert_non_null(
        strstr(err.message, "/.abandoned-step-00000102.1: rename it to step-00000102 "));

    dcp_step *steps;
    size_t n;
    snprintf(path, sizeof path, "%s/file", s->dir);
    write_text(path, "text");
    assert_int_equal(dcp_steps_list(path, &steps, &n, &err), DCP_ERR_ARG);
    assert_int_equal(dcp_steps_list(NULL, &steps, &n, &err), DCP_ERR_ARG);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        scratch_test(names_count_only_as_they_are_made),
        scratch_test(steps_ascend_complete_ones_first),
        scratch_test(a_folder_of_somebody_else_is_no_step),
        scratch_test(an_empty_or_missing_directory_has_no_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
