/* A writer that has lost its store: what it still does has no effect, and its error says who has
 * it. A step that lost its name to an interrupted replacement has it again after the next open. */
#include "support/store_fixture.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "format/hold.h"
#include "io/file.h"
#include "io/publish.h"
#include "store/retention.h"

static int exchanges = 1; /* whether the file system does */
static long renames_left = -1;
static int sync_error;
static const char *moved_from, *moved_to; /* once a step has its name */

/* These replace the C library's functions. */
int renameat2(int a, const char *from, int b, const char *to, unsigned flags) {
    if (exchanges || !flags) return (int)syscall(SYS_renameat2, a, from, b, to, flags);
    errno = EINVAL;
    return -1;
}

int renameat(int a, const char *from, int b, const char *to) {
    if (renames_left == 0) _exit(9); /* killed */
    if (renames_left > 0) renames_left--;
    int result = (int)syscall(SYS_renameat2, a, from, b, to, 0);
    if (moved_from && strncmp(to, "step-", 5) == 0) rename(moved_from, moved_to);
    return result;
}

int fsync(int fd) {
    if (!sync_error) return (int)syscall(SYS_fsync, fd);
    errno = sync_error;
    return -1;
}

static void remove_lock(const struct scratch *s) {
    char path[120];
    snprintf(path, sizeof path, "%s/.lock", s->dir);
    assert_int_equal(unlink(path), 0);
}

static void assert_names_us(const dcp_error *err) {
    char host[256] = "", text[400];
    gethostname(host, sizeof host - 1);
    snprintf(text, sizeof text, "was taken over by another writer, process %ld on host %s",
             (long)getpid(), host);
    if (!strstr(err->message, text)) fail_msg("\"%s\" lacks \"%s\"", err->message, text);
}

static void who_lost_saves_no_more(void **state) {
    struct scratch *s = *state;
    dcp_error err = {0};
    dcp_store *first = open_store(s, 1, 1);
    publish_all(first, 1, 2);
    remove_lock(s);
    dcp_store *second = open_store(s, 0, 0);
    publish_all(second, 3, 4);
    for (uint64_t step = 3; step <= 6; step++) {
        err = (dcp_error){0};
        assert_int_equal(publish(first, step, "of the first", &err), DCP_ERR_BUSY);
        assert_names_us(&err);
    }
    assert_int_equal(store_set_aside(first, &err), DCP_OK);
    dcp_store_continue_from(first, 1, NULL);
    assert_int_equal(store_set_aside(first, &err), DCP_ERR_BUSY);
    assert_steps(s, "c2 c3 c4");
    assert_content(s, "step-00000003/state.h5", "state");
    dcp_store_close(first); /* the second one still has the lock */
    dcp_store *third = NULL;
    assert_int_equal(dcp_store_open(s->comm, s->dir, NULL, &third, &err), DCP_ERR_BUSY);
    publish_all(second, 5, 5);
    dcp_store_close(second);
    dcp_store_close(open_store(s, 0, 0));
    assert_steps(s, "c2 c3 c4 c5");
}

/* During a save, of the same step as the second's. */
static void a_save_in_flight_is_fenced_off(void **state) {
    struct scratch *s = *state;
    dcp_error err = {0};
    char tmp[PATH_MAX], other[PATH_MAX], file[PATH_MAX + 16];
    dcp_store *first = open_store(s, 0, 1);
    publish_all(first, 1, 1);
    assert_int_equal(store_begin(first, 2, tmp, NULL), DCP_OK);
    remove_lock(s);
    dcp_store *second = open_store(s, 0, 1);
    assert_int_equal(store_begin(second, 2, other, NULL), DCP_OK);
    assert_string_not_equal(tmp, other);
    snprintf(file, sizeof file, "%s/state.h5", tmp);
    assert_null(fopen(file, "w")); /* the first one's folder no longer exists */
    int status = finish_and_publish(first, 2, NULL, &err);
    assert_int_not_equal(status, DCP_OK);
    store_rollback(first, 2);
    assert_int_equal(store_find_cause(first, status, &err), DCP_ERR_BUSY);
    assert_names_us(&err);
    snprintf(file, sizeof file, "%s/state.h5", other);
    write_text(file, "of the second");
    assert_int_equal(finish_and_publish(second, 2, NULL, &err), DCP_OK);
    assert_content(s, "step-00000002/state.h5", "of the second");
    dcp_store_close(first);
    dcp_store_close(second);
    assert_steps(s, "c1 c2");
}

/* Before either has saved anything, so that no step and no folder of a save belongs to the
 * first. */
static void who_lost_an_empty_store_leaves_the_seconds_folder(void **state) {
    struct scratch *s = *state;
    dcp_error err = {0};
    char tmp[PATH_MAX], other[PATH_MAX], file[PATH_MAX + 16];
    dcp_store *first = open_store(s, 0, 0);
    remove_lock(s);
    dcp_store *second = open_store(s, 0, 0);
    assert_int_equal(store_begin(second, 2, other, NULL), DCP_OK);
    assert_int_equal(store_begin(first, 2, tmp, &err), DCP_ERR_BUSY);
    store_rollback(first, 2);
    snprintf(file, sizeof file, "%s/state.h5", other);
    write_text(file, "of the second");
    assert_int_equal(finish_and_publish(second, 2, NULL, &err), DCP_OK);
    dcp_store_close(first);
    dcp_store_close(second);
    assert_steps(s, "c2");
}

static void a_removed_lock_that_nobody_took_is_made_again(void **state) {
    struct scratch *s = *state;
    dcp_error err = {0};
    dcp_store *store = open_store(s, 0, 0), *second = NULL;
    publish_all(store, 1, 1);
    remove_lock(s);
    publish_all(store, 2, 2);
    assert_int_equal(dcp_store_open(s->comm, s->dir, NULL, &second, &err), DCP_ERR_BUSY);
    dcp_store_close(store);
    dcp_store_close(open_store(s, 0, 0));
    assert_steps(s, "c1 c2");
}

static void who_lost_rebuilds_no_more(void **state) {
    struct scratch *s = *state;
    dcp_store_options options = {.size = sizeof options, .private_dirs = 1};
    dcp_store *first = NULL, *second = NULL;
    dcp_error err = {0};
    uint64_t step;
    assert_int_equal(dcp_store_open(s->comm, s->dir, &options, &first, &err), DCP_OK);
    remove_lock(s);
    assert_int_equal(dcp_store_open(s->comm, s->dir, &options, &second, &err), DCP_OK);
    assert_int_equal(dcp_store_rebuild(second, 0, &step, NULL, &err), DCP_ERR_NOT_FOUND);
    assert_int_equal(dcp_store_rebuild(first, 0, &step, NULL, &err), DCP_ERR_BUSY);
    assert_names_us(&err);
    dcp_store_close(first);
    dcp_store_close(second);
}

static void rename_store(struct scratch *s, const char *from, const char *to) {
    char old[100], new[100];
    snprintf(old, sizeof old, "%s/%s", s->root, from);
    snprintf(new, sizeof new, "%s/%s", s->root, to);
    assert_int_equal(rename(old, new), 0);
}

static void assert_moved(int status, int expected, const dcp_error *err) {
    char pid[64];
    snprintf(pid, sizeof pid, "process %ld on host", (long)getpid());
    assert_int_equal(status, expected);
    assert_non_null(strstr(err->message, "was moved"));
    assert_int_equal(strstr(err->message, pid) != NULL, expected == DCP_ERR_BUSY);
}

static void a_step_that_has_its_name_keeps_it_in_a_moved_store(void **state) {
    struct scratch *s = *state;
    char away[100];
    dcp_error err = {0};
    snprintf(away, sizeof away, "%s/elsewhere", s->root);
    dcp_store *store = open_store(s, 0, 0);
    moved_from = s->dir, moved_to = away;
    assert_int_equal(publish(store, 1, "state", &err), DCP_OK);
    moved_from = NULL;
    assert_moved(publish(store, 2, "state", &err), DCP_ERR_NOT_FOUND, &err);
    rename_store(s, "elsewhere", "store");
    publish_all(store, 2, 2);
    dcp_store_close(store);
    assert_steps(s, "c1 c2");
}

/* Ranks write by path: what is there now is not the store. */
static void a_store_that_was_moved_is_not_mixed_with_another(void **state) {
    struct scratch *s = *state;
    dcp_error err = {0};
    char tmp[PATH_MAX], other[PATH_MAX], file[PATH_MAX + 16];
    dcp_store *first = open_store(s, 0, 0);
    publish_all(first, 1, 2);
    assert_int_equal(store_begin(first, 3, tmp, NULL), DCP_OK);
    rename_store(s, "store", "elsewhere");
    int status = finish_and_publish(first, 3, NULL, &err);
    assert_moved(status, DCP_ERR_NOT_FOUND, &err);
    store_rollback(first, 3);
    assert_moved(store_find_cause(first, DCP_ERR_IO, &err), DCP_ERR_NOT_FOUND, &err);
    assert_moved(store_begin(first, 3, tmp, &err), DCP_ERR_NOT_FOUND, &err);
    assert_int_equal(access(s->dir, F_OK), -1);

    dcp_store *second = open_store(s, 0, 0);
    publish_all(second, 1, 2);
    assert_int_equal(store_begin(second, 3, other, NULL), DCP_OK);
    assert_string_equal(tmp, other);
    snprintf(file, sizeof file, "%s/about.json", other);
    write_text(file, "of the second");
    assert_moved(store_begin(first, 3, tmp, &err), DCP_ERR_BUSY, &err);
    assert_moved(finish_and_publish(first, 3, NULL, &err), DCP_ERR_BUSY, &err);
    assert_moved(store_find_cause(first, DCP_ERR_IO, &err), DCP_ERR_BUSY, &err);
    assert_content(s, ".tmp-step-00000003/about.json", "of the second");
    assert_int_equal(finish_and_publish(second, 3, NULL, &err), DCP_OK);
    dcp_store_close(second);
    assert_moved(store_begin(first, 3, tmp, &err), DCP_ERR_NOT_FOUND, &err);
    assert_steps(s, "c1 c2 c3");

    rename_store(s, "store", "seconds");
    rename_store(s, "elsewhere", "store");
    assert_steps(s, "c1 c2");
    publish_all(first, 3, 3);
    dcp_store_close(first);
    dcp_store_close(open_store(s, 0, 0));
    assert_steps(s, "c1 c2 c3");
}

static void a_name_that_another_file_has_is_not_published(void **state) {
    struct scratch *s = *state;
    char tmp[100], path[100];
    snprintf(tmp, sizeof tmp, "%s/tmp", s->root);
    snprintf(path, sizeof path, "%s/file", s->root);
    int fd = open(tmp, O_WRONLY | O_CREAT, 0666);
    assert_true(fd >= 0);
    assert_int_equal(unlink(tmp), 0);
    write_text(tmp, "of another");
    assert_int_equal(io_publish_file(fd, tmp, path), -1);
    assert_int_equal(errno, EBUSY);
    assert_int_equal(access(path, F_OK), -1);
    close(fd);
}

/* Killed at each of its renames, on a file system that can exchange names, or cannot. */
static void a_replaced_step_comes_back(void **state) {
    struct scratch *s = *state;
    dcp_store *store = open_store(s, 0, 1);
    int kills = 0, ended = 0;
    publish_all(store, 7, 7);
    dcp_store_close(store);
    for (int n = 0; !ended; n++) {
        exchanges = n % 2;
        pid_t pid = fork();
        if (pid == 0) {
            store = open_store(s, 0, 1);
            renames_left = n / 2;
            int status = publish(store, 7, "state", NULL);
            _exit(status == DCP_OK ? 0 : 1);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status) && (WEXITSTATUS(status) == 9 || !WEXITSTATUS(status)));
        ended = !exchanges && WEXITSTATUS(status) == 0;
        kills += WEXITSTATUS(status) == 9;
        exchanges = 1;
        dcp_store_close(open_store(s, 0, 1));
        assert_steps(s, "c7");
        assert_content(s, "step-00000007/state.h5", "state");
    }
    assert_true(kills >= 4);
}

/* A replaced step waits for its readers, while the new one of that name is removed. */
static void a_replaced_step_that_was_held_does_not_come_back(void **state) {
    struct scratch *s = *state;
    char path[200], about[220];
    bool gone;
    dcp_store *store = open_store(s, 0, 0);
    publish_all(store, 7, 7);
    dcp_store_close(store);
    snprintf(path, sizeof path, "%s/.writer-00000000000000ab", s->dir);
    assert_int_equal(mkdir(path, 0777), 0);
    strcat(path, "/step-00000007");
    assert_int_equal(mkdir(path, 0777), 0);
    snprintf(about, sizeof about, "%s/about.json", path);
    write_text(about, "{}");
    format_hold *hold = format_hold_open(path, 1, &gone);
    assert_non_null(hold);
    store = open_store(s, 1, 0);
    publish_all(store, 8, 8);
    dcp_store_close(store);
    dcp_store_close(open_store(s, 1, 0));
    assert_steps(s, "c8");
    format_hold_close(hold);
    dcp_store_close(open_store(s, 1, 0));
    assert_int_equal(has(s, ".trash-old-step-00000007"), 0);
}

static void names_may_be_as_long_as_can_be(void **state) {
    struct scratch *s = *state;
    char paths[2][100 + NAME_MAX];
    dcp_store_close(open_store(s, 0, 0));
    for (int i = 0; i < 2; i++) {
        size_t end = (size_t)snprintf(paths[i], sizeof paths[i], "%s/.tmp-", s->dir);
        memset(paths[i] + end, 'a', NAME_MAX - 6);
        paths[i][end + NAME_MAX - 6] = (char)('0' + i);
        paths[i][end + NAME_MAX - 5] = '\0';
        assert_int_equal(mkdir(paths[i], 0777), 0);
    }
    dcp_store_close(open_store(s, 0, 0));
    for (int i = 0; i < 2; i++) assert_int_equal(access(paths[i], F_OK), -1);
}

static void folders_that_cannot_be_synced_are_no_failure(void **state) {
    struct scratch *s = *state;
    static const int untold[] = {EINVAL, EOPNOTSUPP, ENOSYS};
    dcp_error err = {0};
    for (size_t i = 0; i < sizeof untold / sizeof *untold; i++) {
        sync_error = untold[i];
        assert_int_equal(io_sync_folder(s->root, &err), DCP_OK);
    }
    sync_error = EIO;
    assert_int_equal(io_sync_folder(s->root, &err), DCP_ERR_IO);
    sync_error = 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        scratch_test(who_lost_saves_no_more),
        scratch_test(a_save_in_flight_is_fenced_off),
        scratch_test(who_lost_an_empty_store_leaves_the_seconds_folder),
        scratch_test(who_lost_rebuilds_no_more),
        scratch_test(a_store_that_was_moved_is_not_mixed_with_another),
        scratch_test(a_step_that_has_its_name_keeps_it_in_a_moved_store),
        scratch_test(a_name_that_another_file_has_is_not_published),
        scratch_test(a_removed_lock_that_nobody_took_is_made_again),
        scratch_test(a_replaced_step_comes_back),
        scratch_test(a_replaced_step_that_was_held_does_not_come_back),
        scratch_test(names_may_be_as_long_as_can_be),
        scratch_test(folders_that_cannot_be_synced_are_no_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
