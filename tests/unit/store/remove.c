/* dcp_step_remove: what it removes and what it leaves, that no reader begins to hold a step while
 * its name is removed, and that a kill at any moment leaves the step or removes it. */
#include "support/store_fixture.h"

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "store/remove.h"
#include "store/retention.h"

static int renames_left = -1, rename_fails;
static const char *going; /* a step that a reader looks for when it is about to lose its name */
static int was_held;

/* Returns true if a reader would hold the step that it opens now. */
static int can_be_held(const char *step_path) {
    struct flock whole = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    char path[300];
    snprintf(path, sizeof path, "%s/about.json", step_path);
    const int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    const int granted = !fcntl(fd, F_OFD_SETLK, &whole);
    close(fd);
    return granted;
}

/* Replaces the C library's function. */
int renameat(int a, const char *from, int b, const char *to) {
    if (renames_left == 0) _exit(9); /* killed */
    if (renames_left > 0) renames_left--;
    if (going) was_held = can_be_held(going);
    going = NULL;
    if (rename_fails) return errno = EIO, -1;
    return (int)syscall(SYS_renameat2, a, from, b, to, 0);
}

static dcp_store *store_of(struct scratch *s, uint64_t steps) {
    dcp_store *store = open_store(s, 0, 0);
    publish_all(store, 1, steps);
    dcp_store_close(store);
    return open_store(s, 0, 0); /* which knows none to be intact */
}

static void assert_removed(dcp_store *store, uint64_t step) {
    dcp_error err;
    if (dcp_step_remove(store, step, &err)) fail_msg("%s", err.message);
}

static void assert_refused(dcp_store *store, uint64_t step, int expected, const char *text) {
    dcp_error err;
    assert_int_equal(dcp_step_remove(store, step, &err), expected);
    char path[200];
    snprintf(path, sizeof path, "/step-%08d", (int)step);
    assert_int_equal(err.status, expected);
    if (expected != DCP_ERR_BUSY || strstr(err.message, "stays"))
        assert_string_equal(strrchr(err.path, '/'), path);
    if (!strstr(err.message, text)) fail_msg("\"%s\" lacks \"%s\"", err.message, text);
}

/* "": there is none. */
static void assert_latest(const struct scratch *s, const char *expected) {
    char path[200], target[64] = "";
    snprintf(path, sizeof path, "%s/latest", s->dir);
    const ssize_t length = readlink(path, target, sizeof target - 1);
    assert_int_equal(length >= 0, *expected != 0);
    assert_string_equal(target, expected);
}

/* Checks that there are no entries except steps, `latest`, `.lock` and the writer's empty
 * folder. */
static void assert_nothing_left(const struct scratch *s) {
    char command[300];
    snprintf(command, sizeof command,
             "test -z \"$(find %s -mindepth 1 -maxdepth 2 -path '*/.*' ! -name .lock ! -name "
             "'.writer-*')\"",
             s->dir);
    assert_int_equal(system(command), 0);
}

static void any_step_goes(void **state) {
    struct scratch *s = *state;
    dcp_store *store = store_of(s, 4);
    assert_refused(store, 9, DCP_ERR_NOT_FOUND, "holds no step-00000009");
    assert_removed(store, 2);
    assert_steps(s, "c1 c3 c4");
    assert_latest(s, "step-00000004");
    assert_refused(store, 2, DCP_ERR_NOT_FOUND, "holds no step-00000002");
    assert_removed(store, 4);
    assert_steps(s, "c1 c3");
    assert_latest(s, "step-00000003");
    publish_all(store, 4, 4); /* its number is free */
    assert_latest(s, "step-00000004");
    dcp_store_close(store);
    store = open_store(s, 0, 0);
    assert_removed(store, 4);
    assert_removed(store, 1);
    assert_removed(store, 3);
    assert_steps(s, "");
    assert_latest(s, "");
    assert_nothing_left(s);
    publish_all(store, 1, 1);
    assert_steps(s, "c1");
    dcp_store_close(store);
    assert_int_equal(dcp_step_remove(NULL, 1, NULL), DCP_ERR_ARG);
}

static void what_is_known_to_be_intact_stays(void **state) {
    struct scratch *s = *state;
    dcp_store *store = open_store(s, 0, 0);
    publish_all(store, 1, 3);
    assert_refused(store, 3, DCP_ERR_STATE, "mark it as intact");
    assert_int_equal(dcp_store_mark_intact(store, 2, NULL), DCP_OK);
    assert_refused(store, 2, DCP_ERR_STATE, "step-00000002 stays");
    assert_removed(store, 3);
    assert_steps(s, "c1 c2");
    assert_latest(s, "step-00000002");
    dcp_store_close(store);
}

static void what_is_held_stays(void **state) {
    struct scratch *s = *state;
    char path[200];
    dcp_pin *pin;
    dcp_store *store = store_of(s, 3);
    snprintf(path, sizeof path, "%s/step-00000002", s->dir);
    assert_int_equal(dcp_step_pin(path, &pin, NULL), DCP_OK);
    assert_refused(store, 2, DCP_ERR_BUSY, "step-00000002 stays: a program has it open or pinned");
    assert_steps(s, "c1 c2 c3");
    dcp_step_unpin(pin);
    store_pin(store, 2);
    assert_refused(store, 2, DCP_ERR_BUSY, "it is being copied");
    store_unpin(store, 2);
    assert_removed(store, 2);
    assert_steps(s, "c1 c3");
    dcp_store_close(store);
}

/* A pin ends with its process. */
static void what_a_killed_process_pinned_goes(void **state) {
    struct scratch *s = *state;
    char path[200], byte;
    int ready[2], status;
    dcp_store *store = store_of(s, 2);
    snprintf(path, sizeof path, "%s/step-00000001", s->dir);
    assert_int_equal(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
        dcp_pin *pin;
        if (dcp_step_pin(path, &pin, NULL) || write(ready[1], "x", 1) != 1) _exit(1);
        for (;;) pause();
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_refused(store, 1, DCP_ERR_BUSY, "pinned");
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_removed(store, 1);
    assert_steps(s, "c2");
    dcp_store_close(store);
}

/* A name that had a reader would disappear for a moment, if the writer noticed the reader, or
 * permanently. */
static void nobody_comes_to_hold_what_goes(void **state) {
    struct scratch *s = *state;
    char path[200];
    dcp_store *store = store_of(s, 3);
    snprintf(path, sizeof path, "%s/step-00000003", s->dir);
    going = path;
    assert_removed(store, 3);
    assert_null(going);
    assert_false(was_held);
    assert_steps(s, "c1 c2");
    dcp_store_close(store);
}

/* Likewise if `keep` removes the step, or it is removed to make room. */
static void nobody_comes_to_hold_an_old_step_that_goes(void **state) {
    struct scratch *s = *state;
    char path[200];
    uint64_t from = 0;
    int made;
    dcp_store_close(store_of(s, 3));
    dcp_store *store = open_store(s, 2, 0);
    snprintf(path, sizeof path, "%s/step-00000001", s->dir);
    going = path;
    assert_int_equal(retain_after(store, 3), DCP_OK);
    assert_null(going);
    assert_false(was_held);
    assert_steps(s, "c2 c3");
    snprintf(path, sizeof path, "%s/step-00000002", s->dir);
    going = path;
    assert_int_equal(store_free_space(store, &from, &made, NULL), DCP_OK);
    assert_true(made);
    assert_null(going);
    assert_false(was_held);
    assert_steps(s, "c3");
    dcp_store_close(store);
    assert_nothing_left(s);
}

static void what_could_not_go_can_be_held_again(void **state) {
    struct scratch *s = *state;
    char path[200];
    dcp_store *store = store_of(s, 2);
    snprintf(path, sizeof path, "%s/step-00000001", s->dir);
    rename_fails = 1;
    assert_refused(store, 1, DCP_ERR_IO, "cannot rename");
    rename_fails = 0;
    assert_true(can_be_held(path));
    assert_removed(store, 1);
    dcp_store_close(store);
}

static void who_lost_the_store_removes_nothing(void **state) {
    struct scratch *s = *state;
    char path[120];
    dcp_store *first = store_of(s, 3);
    snprintf(path, sizeof path, "%s/.lock", s->dir);
    assert_int_equal(unlink(path), 0);
    dcp_store *second = open_store(s, 0, 0);
    assert_refused(first, 2, DCP_ERR_BUSY, "was taken over by another writer");
    assert_steps(s, "c1 c2 c3");
    assert_removed(second, 2);
    dcp_store_close(first);
    dcp_store_close(second);
    assert_steps(s, "c1 c3");
}

static void a_fork_of_the_writer_removes_nothing(void **state) {
    struct scratch *s = *state;
    int status;
    dcp_store *store = store_of(s, 2);
    const pid_t child = fork();
    if (child == 0) _exit(dcp_step_remove(store, 1, NULL) == DCP_ERR_STATE ? 0 : 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_steps(s, "c1 c2");
    dcp_store_close(store);
}

/* Killed at each of the renames: the newest step exists with all its files, or does not exist. */
static void a_kill_takes_the_step_or_leaves_it(void **state) {
    struct scratch *s = *state;
    int ended = 0, kills = 0;
    while (!ended) {
        int status;
        dcp_store_close(store_of(s, 3));
        const pid_t child = fork();
        if (child == 0) {
            dcp_store *store = open_store(s, 0, 0);
            renames_left = kills;
            _exit(dcp_step_remove(store, 3, NULL) == DCP_OK ? 0 : 1);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        ended = status == 0;
        assert_true(ended || WEXITSTATUS(status) == 9);
        dcp_store *store = open_store(s, 0, 0);
        assert_nothing_left(s);
        if (has(s, "step-00000003"))
            assert_content(s, "step-00000003/state.h5", "state");
        else
            assert_steps(s, "c1 c2");
        assert_true(!ended || !has(s, "step-00000003"));
        dcp_store_close(store);
        assert_int_equal(store_directory_remove(AT_FDCWD, s->dir), 0);
        assert_true(++kills < 50);
    }
    assert_true(kills > 3); /* aside, latest, away */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        scratch_test(any_step_goes),
        scratch_test(what_is_known_to_be_intact_stays),
        scratch_test(what_is_held_stays),
        scratch_test(what_a_killed_process_pinned_goes),
        scratch_test(nobody_comes_to_hold_what_goes),
        scratch_test(nobody_comes_to_hold_an_old_step_that_goes),
        scratch_test(what_could_not_go_can_be_held_again),
        scratch_test(who_lost_the_store_removes_nothing),
        scratch_test(a_fork_of_the_writer_removes_nothing),
        scratch_test(a_kill_takes_the_step_or_leaves_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
