/* Other things in place of a step's files: links, pipes, folders, sockets, devices. Only regular
 * files of the step's folder are read, and nothing waits for a pipe's writer. */
#include "refused.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "steps.h"

static const char *join(const char *a, const char *b) {
    static char paths[8][300];
    static int next;
    char *out = paths[next++ % 8];
    snprintf(out, 300, "%s/%s", a, b);
    return out;
}

static int make_socket(const char *path) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0 || strlen(path) >= sizeof name.sun_path) return -1;
    strcpy(name.sun_path, path);
    int failed = bind(fd, (struct sockaddr *)&name, sizeof name);
    close(fd);
    return failed;
}

/* `file` of `step` has been replaced; `real` is the original, elsewhere. */
typedef struct place {
    const char *step, *file, *real;
} place;

static void refused_here(const place *p, const char *kind, const char *part) {
    char what[400];
    findings f;
    snprintf(what, sizeof what, "%s: %s", p->file, kind);
    if (!strcmp(p->file, "about.json")) { /* not part of the state: loads do without it */
        assert_int_equal(findings_of(p->step, &f), DCP_ERR_CORRUPT);
        if (!strstr(f.text, part)) fail_msg("%s: not said: %s: %s", what, part, f.text);
    } else {
        expect_refused(what, p->step, DCP_ERR_CORRUPT, part);
    }
}

static void each_kind(const char *step, const char *file) {
    const char *path = join(step, file);
    char real[300];
    snprintf(real, sizeof real, "%s", join(root, "real"));
    place p = {step, file, real};
    assert_int_equal(rename(path, real), 0);
    assert_int_equal(symlink(real, path), 0);
    refused_here(&p, "a link", "a symbolic link");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("nowhere", path), 0);
    refused_here(&p, "a link to nothing", "a symbolic link");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink(file, path), 0);
    refused_here(&p, "a link to itself", "a symbolic link");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    refused_here(&p, "a pipe", "not a regular file");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    refused_here(&p, "a folder", "not a regular file");
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(make_socket(path), 0);
    refused_here(&p, "a socket", file);
    assert_int_equal(unlink(path), 0);
    if (mknod(path, S_IFCHR | 0600, 1 << 8 | 5) == 0) { /* /dev/zero, if we are root */
        refused_here(&p, "a device", file);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(rename(real, path), 0);
    expect_loads(step);
}

static void in_place_of_a_file(void **state) {
    (void)state;
    each_kind(global, "state.h5");
    each_kind(sharded, "shard-00000-of-00001.h5");
    each_kind(global, "about.json");
}

/* Users may pass a link to a step or a directory; a directory's own steps must be folders. */
static void links_to_folders(void **state) {
    (void)state;
    dcp_comm *comm;
    dcp_checkpoint *ckpt = NULL;
    dcp_error err = {0};
    assert_int_equal(dcp_comm_self(&comm, NULL), DCP_OK);
    expect_loads(join(root, "g/latest"));
    assert_int_equal(mkdir(join(root, "linked"), 0700), 0);
    assert_int_equal(symlink(global, join(root, "linked/step-00000003")), 0);
    assert_int_equal(dcp_checkpoint_open(comm, join(root, "linked"), &ckpt, &err),
                     DCP_ERR_NOT_FOUND);
    assert_non_null(strstr(err.message, "no complete step"));
    dcp_comm_destroy(comm);
}

/* Numbers in the names of shards. */
static void names_of_shards(void **state) {
    (void)state;
    static const struct {
        const char *name, *part;
    } cases[] = {
        {"shard-00000-of-99999.h5", "of-99999.h5 is missing"},
        {"shard-00001-of-00002.h5", "shard-00000-of-00002.h5 is missing"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path = join(sharded, cases[i].name);
        assert_int_equal(link(join(sharded, "shard-00000-of-00001.h5"), path), 0);
        expect_refused(cases[i].name, sharded, DCP_ERR_CORRUPT, cases[i].part);
        assert_int_equal(unlink(path), 0);
    }
    static const char *const others[] = {"shard-00000-of--0001.h5", "shard-00000-of-00009.h5x",
                                         "shard-00000-of-123456.h5", "shard-+0000-of-00002.h5"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) { /* are not shards */
        const char *path = join(sharded, others[i]);
        assert_int_equal(mkfifo(path, 0600), 0);
        expect_loads(sharded);
        assert_int_equal(unlink(path), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_place_of_a_file),
        cmocka_unit_test(links_to_folders),
        cmocka_unit_test(names_of_shards),
    };
    return cmocka_run_group_tests(tests, make_steps, remove_steps);
}
