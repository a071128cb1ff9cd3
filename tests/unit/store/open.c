/* Opening a store: the directory with its parents, left-overs of a killed writer, the lock between
 * two processes, and directories that cannot be used. */
#include <sys/wait.h>

#include "support/store_fixture.h"

static void missing_parents_are_made(void **state) {
    struct scratch *s = *state;
    snprintf(s->dir, sizeof s->dir, "%s/a/b//c/", s->root);
    dcp_store *store = open_store(s, 0, 0);
    publish_all(store, 1, 1);
    assert_steps(s, "c1");
    dcp_store_close(store);
    dcp_store_close(NULL);
}

static void only_left_overs_are_cleaned(void **state) {
    struct scratch *s = *state;
    static const char *const folders[] = {
        ".tmp-step-00000004", ".trash-step-00000001",     ".trash-.abandoned-step-00000002.1",
        "step-00000003",      ".abandoned-step-00000009", "step-of-mine"};
    char path[300];
    assert_int_equal(mkdir(s->dir, 0777), 0);
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        snprintf(path, sizeof path, "%s/%s", s->dir, folders[i]);
        assert_int_equal(mkdir(path, 0777), 0);
        snprintf(path, sizeof path, "%s/%s/state.h5", s->dir, folders[i]);
        write_text(path, "state");
    }
    dcp_store_close(open_store(s, 1, 0));
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        assert_int_equal(has(s, folders[i]), i >= 3);
    assert_non_null(strstr(s->log, ".tmp-step-00000004, which a killed writer left"));
}

/* Takes the lock, reports that, and holds it until it is told to end. Returns 0 on success. */
static int hold_lock(struct scratch *s, int tell, int wait) {
    dcp_store *store = open_store(s, 0, 0);
    char byte = 'x';
    if (write(tell, &byte, 1) != 1 || read(wait, &byte, 1) != 0) return 1;
    (void)store; /* ends as a killed process does, without closing it */
    return 0;
}

static void a_second_writer_is_told_who_writes(void **state) {
    struct scratch *s = *state;
    int ready[2], end[2], exit_status;
    char byte, pid_text[32], host[256] = "";
    assert_int_equal(pipe(ready) | pipe(end), 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(end[1]);
        _exit(hold_lock(s, ready[1], end[0]));
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);

    dcp_store *store = NULL;
    dcp_error err = {0};
    assert_int_equal(dcp_store_open(s->comm, s->dir, NULL, &store, &err), DCP_ERR_BUSY);
    assert_null(store);
    snprintf(pid_text, sizeof pid_text, "process %ld on host", (long)pid);
    gethostname(host, sizeof host - 1);
    assert_non_null(strstr(err.message, pid_text));
    assert_non_null(strstr(err.message, host));

    close(end[1]);
    assert_int_equal(waitpid(pid, &exit_status, 0), pid);
    assert_int_equal(exit_status, 0);
    store = open_store(s, 0, 0); /* what the dead one wrote into the file does not matter */
    dcp_store *second;
    assert_int_equal(dcp_store_open(s->comm, s->dir, NULL, &second, &err), DCP_ERR_BUSY);
    dcp_store_close(store);
    dcp_store_close(open_store(s, 0, 0));
}

static void assert_cannot_open(struct scratch *s, const char *dir, int status, const char *text) {
    dcp_store *store = NULL;
    dcp_error err = {0};
    assert_int_equal(dcp_store_open(s->comm, dir, NULL, &store, &err), status);
    if (!strstr(err.message, text)) fail_msg("\"%s\" lacks \"%s\"", err.message, text);
    assert_null(store);
}

static void unusable_directories_are_named(void **state) {
    struct scratch *s = *state;
    char path[200], below[240], longest[PATH_MAX + 1];
    snprintf(path, sizeof path, "%s/file", s->root);
    write_text(path, "text");
    assert_cannot_open(s, path, DCP_ERR_ARG, "/file: Not a directory");
    snprintf(below, sizeof below, "%s/store", path);
    assert_cannot_open(s, below, DCP_ERR_ARG, "/file: Not a directory");
    memset(longest, 'x', PATH_MAX);
    longest[PATH_MAX] = '\0';
    assert_cannot_open(s, longest, DCP_ERR_ARG, "path has 4096 bytes");
    assert_cannot_open(s, "", DCP_ERR_ARG, "path has 0 bytes");
    assert_cannot_open(s, NULL, DCP_ERR_ARG, "dir is NULL");
    if (geteuid() == 0) return; /* root may write anywhere */
    assert_int_equal(mkdir(s->dir, 0555), 0);
    assert_cannot_open(s, s->dir, DCP_ERR_IO, "Permission denied; allow this user to use it");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        scratch_test(missing_parents_are_made),
        scratch_test(only_left_overs_are_cleaned),
        scratch_test(a_second_writer_is_told_who_writes),
        scratch_test(unusable_directories_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
