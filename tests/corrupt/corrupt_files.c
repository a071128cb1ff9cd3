/* Files that are truncated, extended, replaced by garbage, or missing: verification and opening
 * refuse them, each with its own status, and the intact step can still be loaded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "damage.h"
#include "tiny.h"

static char root[] = "/tmp/dcp-files-XXXXXX";
static dcp_comm *comm;

static const char *in_root(const char *name) {
    static char path[16][256];
    static int next;
    char *out = path[next++ % 16];
    snprintf(out, 256, "%s/%s", root, name);
    return out;
}

static void expect_refused(const char *step, int open_status, const char *part) {
    findings f;
    dcp_error err = {0};
    dcp_checkpoint *ckpt = NULL;
    assert_int_equal(findings_of(step, &f), DCP_ERR_CORRUPT);
    assert_true(f.n > 0);
    if (!strstr(f.text, part)) fail_msg("'%s' is not in: %s", part, f.text);
    int status = dcp_checkpoint_open(comm, step, &ckpt, &err);
    if (status != open_status) fail_msg("opening gave %d: %s", status, err.message);
    assert_null(ckpt);
}

static void expect_intact(const char *step) {
    findings f;
    assert_int_equal(findings_of(step, &f), DCP_OK);
    dcp_checkpoint *ckpt;
    assert_int_equal(dcp_checkpoint_open(comm, step, &ckpt, NULL), DCP_OK);
    dcp_checkpoint_close(ckpt);
}

static void check_sizes(const char *step, const char *file) {
    victim v;
    assert_int_equal(victim_open(&v, step, file), 0);
    size_t sizes[] = {0,       1,          100,     4095,    4096,       4097,
                      v.n / 2, v.n - 4096, v.n - 1, v.n + 1, v.n + 4096, v.n + (8 << 20)};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        assert_int_equal(ftruncate(v.fd, (off_t)sizes[i]), 0);
        expect_refused(step, DCP_ERR_CORRUPT, file);
        assert_int_equal(victim_restore(&v), 0);
    }
    victim_close(&v);
    expect_intact(step);
}

static void other_sizes(void **state) {
    (void)state;
    check_sizes(in_root("g/step-00000003"), "state.h5");
    check_sizes(in_root("s/step-00000003"), "shard-00000-of-00001.h5");
}

static void about_json_of_other_sizes(void **state) {
    (void)state;
    victim v;
    findings f;
    const char *step = in_root("g/step-00000003");
    assert_int_equal(victim_open(&v, step, "about.json"), 0);
    size_t sizes[] = {0, 1, v.n / 2, v.n - 1, v.n + 1};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        assert_int_equal(ftruncate(v.fd, (off_t)sizes[i]), 0);
        assert_int_equal(findings_of(step, &f), DCP_ERR_CORRUPT);
        assert_non_null(strstr(f.text, "about.json"));
        assert_int_equal(victim_restore(&v), 0);
    }
    victim_close(&v);
    expect_intact(step);
}

static void garbage(void **state) {
    (void)state;
    victim v;
    const char *step = in_root("g/step-00000003");
    assert_int_equal(victim_open(&v, step, "state.h5"), 0);
    unsigned char *noise = malloc(v.n);
    for (size_t i = 0, x = 7; i < v.n; i++) {
        x = x * 1664525 + 1013904223;
        noise[i] = (unsigned char)(x >> 16);
    }
    assert_int_equal(pwrite(v.fd, noise, v.n, 0), v.n);
    expect_refused(step, DCP_ERR_CORRUPT, "state.h5");
    assert_int_equal(pwrite(v.fd, v.bytes, 4096, 0), 4096); /* only the user block is ours */
    expect_refused(step, DCP_ERR_CORRUPT, "state.h5");
    memset(noise, 0, v.n);
    assert_int_equal(pwrite(v.fd, noise, v.n, 0), v.n);
    expect_refused(step, DCP_ERR_CORRUPT, "state.h5");
    free(noise);
    assert_int_equal(victim_restore(&v), 0);
    victim_close(&v);
    expect_intact(step);
}

static void expect_missing(const char *step, const char *name, int open_status) {
    char path[300];
    snprintf(path, sizeof path, "%s/%s", step, name);
    assert_int_equal(rename(path, in_root("aside")), 0);
    expect_refused(step, open_status, name);
    assert_int_equal(mkdir(path, 0777), 0); /* a folder in its place */
    expect_refused(step, open_status, name);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(rename(in_root("aside"), path), 0);
    expect_intact(step);
}

static void missing_files(void **state) {
    (void)state;
    findings f;
    expect_missing(in_root("g/step-00000003"), "state.h5", DCP_ERR_CORRUPT);
    const char *step = in_root("g/step-00000003");
    assert_int_equal(rename(in_root("g/step-00000003/about.json"), in_root("aside")), 0);
    assert_int_equal(findings_of(step, &f), DCP_ERR_CORRUPT);
    assert_non_null(strstr(f.text, "about.json"));
    assert_int_equal(rename(in_root("aside"), in_root("g/step-00000003/about.json")), 0);
    expect_intact(step);
}

static int make_steps(void **state) {
    (void)state;
    if (!mkdtemp(root) || dcp_comm_self(&comm, NULL)) return -1;
    int status = tiny_save(comm, in_root("g"), 3, DCP_LAYOUT_GLOBAL, NULL);
    if (status == DCP_OK) status = tiny_save(comm, in_root("s"), 3, DCP_LAYOUT_SHARDED, NULL);
    return status;
}

static int remove_steps(void **state) {
    (void)state;
    dcp_comm_destroy(comm);
    remove_folder_tree(root);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_sizes),
        cmocka_unit_test(about_json_of_other_sizes),
        cmocka_unit_test(garbage),
        cmocka_unit_test(missing_files),
    };
    return cmocka_run_group_tests(tests, make_steps, remove_steps);
}
