/* Symbolic links in a folder of safetensors: followed within the folder and into the blobs of the
 * Hugging Face cache that contains it, and nowhere else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "dcp/safetensors.h"

static char root[] = "/tmp/dcp-st-links-XXXXXX";

static const char *in_root(const char *name) {
    static char paths[4][300];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, 300, "%s/%s", root, name);
    return path;
}

static void write_tensor(const char *name, const char *of, float value) {
    dcp_tensor tensor = {of, DCP_F32, 1, {1}};
    dcp_st_writer *writer;
    assert_int_equal(dcp_st_create(in_root(name), &tensor, 1, &writer, NULL), DCP_OK);
    assert_int_equal(dcp_st_write(writer, &value, sizeof value, NULL), DCP_OK);
    assert_int_equal(dcp_st_finish(writer, NULL), DCP_OK);
}

static void write_model(const char *name) { write_tensor(name, "w", 1); }

static void write_index(const char *name, const char *file) {
    FILE *f = fopen(in_root(name), "w");
    assert_non_null(f);
    fprintf(f, "{\"weight_map\":{\"w\":\"%s\"}}", file);
    assert_int_equal(fclose(f), 0);
}

static void put_link(const char *name, const char *target) {
    unlink(in_root(name));
    assert_int_equal(symlink(target, in_root(name)), 0);
}

static void expect_opens(const char *path) {
    dcp_error err = {0};
    dcp_st_reader *reader = NULL;
    if (dcp_st_open(in_root(path), &reader, &err)) fail_msg("%s: %s", path, err.message);
    assert_int_equal(dcp_st_tensors(reader), 1);
    dcp_st_close(reader);
}

static void expect_refused(const char *path, int status, const char *part) {
    dcp_error err = {0};
    dcp_st_reader *reader = NULL;
    assert_int_equal(dcp_st_open(in_root(path), &reader, &err), status);
    assert_null(reader);
    if (!strstr(err.message, part)) fail_msg("'%s' does not say '%s'", err.message, part);
}

#define OUT "a link out of its folder"

static void one_file(void **state) {
    (void)state;
    put_link("m/model.safetensors", "../outside.safetensors");
    expect_refused("m", DCP_ERR_CORRUPT, OUT);
    put_link("m/model.safetensors", in_root("outside.safetensors"));
    expect_refused("m", DCP_ERR_CORRUPT, OUT);
    put_link("m/hop", "../outside.safetensors");
    put_link("m/model.safetensors", "hop");
    expect_refused("m", DCP_ERR_CORRUPT, OUT);
    put_link("m/model.safetensors", "inside.safetensors");
    expect_opens("m");
    expect_opens("m/model.safetensors");
    put_link("to-m", "m");
    expect_opens("to-m"); /* a user's own links */
    put_link("to-file", "m/inside.safetensors");
    expect_opens("to-file");
    assert_int_equal(unlink(in_root("m/model.safetensors")), 0);
}

static void an_index(void **state) {
    (void)state;
    write_index("m/model.safetensors.index.json", "listed.safetensors");
    put_link("m/listed.safetensors", "../outside.safetensors");
    expect_refused("m", DCP_ERR_CORRUPT, OUT);
    put_link("m/listed.safetensors", "nowhere");
    expect_refused("m", DCP_ERR_NOT_FOUND, "listed.safetensors");
    put_link("m/listed.safetensors", "listed.safetensors");
    expect_refused("m", DCP_ERR_IO, "listed.safetensors");
    put_link("m/listed.safetensors", "inside.safetensors");
    expect_opens("m");
    write_index("outside.json", "inside.safetensors");
    put_link("m/model.safetensors.index.json", "../outside.json");
    expect_refused("m", DCP_ERR_CORRUPT, OUT);
    assert_int_equal(unlink(in_root("m/model.safetensors.index.json")), 0);
}

static void the_cache(void **state) {
    (void)state;
    put_link("hub/snapshots/0123/model.safetensors", "../../blobs/4567");
    expect_opens("hub/snapshots/0123");
    put_link("hub/snapshots/0123/model.safetensors", "../../blobs/../../outside.safetensors");
    expect_refused("hub/snapshots/0123", DCP_ERR_CORRUPT, OUT);
    put_link("hub/snapshots/0123/model.safetensors", "../../blobs-of-others/4567");
    expect_refused("hub/snapshots/0123", DCP_ERR_CORRUPT, OUT);
}

/* More files than the process may have open, through links, as in a snapshot. Each file that is
 * read must be the one whose header was read. */
static void more_files_than_may_be_open(void **state) {
    (void)state;
    enum { FILES = 60, OPEN = 40 };
    struct rlimit before, few;
    char name[64], target[64];
    float value;
    dcp_error err = {0};
    dcp_st_reader *reader = NULL;
    FILE *index = fopen(in_root("hub/snapshots/0123/model.safetensors.index.json"), "w");
    assert_non_null(index);
    unlink(in_root("hub/snapshots/0123/model.safetensors"));
    fprintf(index, "{\"weight_map\":{");
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "hub/blobs/%d", i);
        snprintf(target, sizeof target, "w%d", i);
        write_tensor(name, target, (float)i);
        snprintf(target, sizeof target, "../../blobs/%d", i);
        snprintf(name, sizeof name, "hub/snapshots/0123/%d", i);
        put_link(name, target);
        fprintf(index, "%s\"w%d\":\"%d\"", i ? "," : "", i, i);
    }
    fprintf(index, "}}");
    assert_int_equal(fclose(index), 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = before;
    few.rlim_cur = OPEN;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    if (dcp_st_open(in_root("hub/snapshots/0123"), &reader, &err)) fail_msg("%s", err.message);
    assert_int_equal(dcp_st_files(reader), FILES);
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < FILES; i++) {
            snprintf(name, sizeof name, "w%d", i);
            if (dcp_st_read(reader, name, 0, 4, &value, &err)) fail_msg("%s", err.message);
            assert_true(value == (float)i);
        }
    assert_int_equal(rename(in_root("hub/blobs/1"), in_root("hub/blobs/0")), 0);
    assert_int_equal(dcp_st_read(reader, "w0", 0, 4, &value, &err), DCP_ERR_CORRUPT);
    assert_non_null(strstr(err.message, "0123/0: was replaced or changed"));
    dcp_st_close(reader);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

static int make_files(void **state) {
    (void)state;
    static const char *const folders[] = {
        "m", "hub", "hub/blobs", "hub/blobs-of-others", "hub/snapshots", "hub/snapshots/0123"};
    if (!mkdtemp(root)) return -1;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        if (mkdir(in_root(folders[i]), 0700)) return -1;
    write_model("outside.safetensors");
    write_model("m/inside.safetensors");
    write_model("hub/blobs/4567");
    write_model("hub/blobs-of-others/4567");
    return 0;
}

static int remove_files(void **state) {
    (void)state;
    char command[100];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_file),
        cmocka_unit_test(an_index),
        cmocka_unit_test(the_cache),
        cmocka_unit_test(more_files_than_may_be_open),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
