/* A step that a reader has open is kept: `keep`, a replacement, a writer's start and the recycling
 * of its files leave it until it is closed. Then it is removed. Children of the reader do not hold
 * it. A step that a writer has claimed cannot be held until the claim ends. */
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include "format/hold.h"
#include "support/store_fixture.h"

static void (*meanwhile)(void); /* what happens once, while a reader waits */

/* Replaces the C library's function: waiting takes no time in this test. */
int nanosleep(const struct timespec *time, struct timespec *rest) {
    (void)time, (void)rest;
    void (*happens)(void) = meanwhile;
    meanwhile = NULL;
    if (happens) happens();
    return 0;
}

static void path_in(const struct scratch *s, const char *name, char *path) {
    snprintf(path, 200, "%s/%s", s->dir, name);
}

static format_hold *hold_step(const struct scratch *s, const char *name) {
    char path[200];
    bool gone;
    path_in(s, name, path);
    format_hold *hold = format_hold_open(path, 1, &gone);
    assert_non_null(hold);
    assert_non_null(hold->lock);
    return hold;
}

/* Checks what the reader finds in the folder that it holds, whatever its name is. */
static void assert_readable(const format_hold *hold, const char *expected) {
    char text[64] = "";
    int fd = openat(hold->folder_fd, "state.h5", O_RDONLY);
    assert_true(fd >= 0);
    assert_true(read(fd, text, sizeof text - 1) > 0);
    close(fd);
    assert_string_equal(text, expected);
}

static int entries_like(const struct scratch *s, const char *prefix) {
    char command[300], path[200];
    path_in(s, "", path);
    snprintf(command, sizeof command, "ls -A %s | grep -c '^[.]%s' | grep -q '^0$'", path, prefix);
    return system(command) != 0;
}

static void keep_leaves_what_is_held(void **state) {
    struct scratch *s = *state;
    dcp_store *store = open_store(s, 1, 0);
    publish_all(store, 1, 1);
    format_hold *hold = hold_step(s, "step-00000001");
    publish_all(store, 2, 4);
    assert_steps(s, "c1 c4");
    assert_true(format_hold_is_named(hold));
    assert_readable(hold, "state");
    assert_non_null(strstr(s->log, "step-00000001 stays while a reader holds it"));
    format_hold_close(hold);
    publish_all(store, 5, 5);
    assert_steps(s, "c5");
    dcp_store_close(store);
}

static void several_readers_hold_a_step(void **state) {
    struct scratch *s = *state;
    dcp_store *store = open_store(s, 1, 0);
    publish_all(store, 1, 1);
    format_hold *first = hold_step(s, "step-00000001"), *second = hold_step(s, "step-00000001");
    format_hold_close(first);
    publish_all(store, 2, 2);
    assert_steps(s, "c1 c2");
    format_hold_close(second);
    publish_all(store, 3, 3);
    assert_steps(s, "c3");
    dcp_store_close(store);
}

/* It loses its name immediately, and its files when it is closed. */
static void what_is_replaced_can_still_be_read(void **state) {
    struct scratch *s = *state;
    dcp_error err = {0};
    dcp_store *store = open_store(s, 0, 1);
    assert_int_equal(publish(store, 1, "old", &err), DCP_OK);
    format_hold *hold = hold_step(s, "step-00000001");
    assert_int_equal(publish(store, 1, "new", &err), DCP_OK);
    assert_false(format_hold_is_named(hold));
    assert_content(s, "step-00000001/state.h5", "new");
    assert_readable(hold, "old");
    assert_int_equal(publish(store, 1, "newer", &err), DCP_OK); /* the new folder is free */
    assert_readable(hold, "old");
    dcp_store_close(store);
    store = open_store(s, 0, 1); /* a start removes left-overs, but not this one */
    assert_readable(hold, "old");
    assert_true(entries_like(s, "trash"));
    format_hold_close(hold);
    publish_all(store, 2, 2);
    assert_false(entries_like(s, "trash"));
    dcp_store_close(store);
}

static void a_start_leaves_what_is_held(void **state) {
    struct scratch *s = *state;
    char from[200], to[200];
    dcp_store *store = open_store(s, 0, 0);
    publish_all(store, 1, 2);
    dcp_store_close(store);
    path_in(s, "step-00000001", from);
    path_in(s, ".tmp-step-00000003", to); /* as a killed exchange of names leaves it */
    format_hold *hold = hold_step(s, "step-00000001");
    assert_int_equal(rename(from, to), 0);
    store = open_store(s, 0, 0);
    assert_readable(hold, "state");
    assert_false(has(s, ".tmp-step-00000003")); /* whoever still writes there finds nothing */
    publish_all(store, 3, 3);
    assert_readable(hold, "state");
    assert_steps(s, "c2 c3");
    format_hold_close(hold);
    dcp_store_close(store);
    assert_false(entries_like(s, "t"));
}

/* As left by a replacement whose exchange of names could not be undone. */
static void a_save_that_needs_its_name_leaves_what_is_held(void **state) {
    struct scratch *s = *state;
    char from[200], to[200];
    dcp_store *store = open_store(s, 0, 0);
    publish_all(store, 1, 2);
    path_in(s, "step-00000001", from);
    path_in(s, ".tmp-step-00000003", to);
    format_hold *hold = hold_step(s, "step-00000001");
    assert_int_equal(rename(from, to), 0);
    publish_all(store, 3, 3);
    assert_readable(hold, "state");
    assert_steps(s, "c2 c3");
    format_hold_close(hold);
    dcp_store_close(store);
    assert_false(entries_like(s, "t"));
}

static void abandoned_steps_stay_while_held(void **state) {
    struct scratch *s = *state;
    dcp_store *store = open_store(s, 1, 0);
    publish_all(store, 5, 5);
    format_hold *hold = hold_step(s, "step-00000005");
    assert_int_equal(dcp_store_continue_from(store, 3, NULL), DCP_OK);
    publish_all(store, 4, 6);
    assert_steps(s, "a5 c6");
    assert_readable(hold, "state");
    format_hold_close(hold);
    publish_all(store, 7, 7);
    assert_steps(s, "c7");
    dcp_store_close(store);
}

/* The child continues; the hold ends with the parent's close. */
static void a_child_does_not_hold(void **state) {
    struct scratch *s = *state;
    int ends[2], told[2];
    char byte = 0;
    dcp_store *store = open_store(s, 1, 0);
    publish_all(store, 1, 1);
    format_hold *hold = hold_step(s, "step-00000001");
    assert_int_equal(pipe(ends) | pipe(told), 0);
    pid_t child = fork();
    if (child == 0) {
        close(ends[1]);
        if (hold->lock->fd == -1) (void)!write(told[1], &byte, 1);
        close(told[1]);
        _exit(read(ends[0], &byte, 1) == 0 ? 0 : 1); /* until the parent closes its end */
    }
    close(told[1]);
    assert_int_equal(read(told[0], &byte, 1), 1);
    publish_all(store, 2, 2);
    assert_steps(s, "c1 c2"); /* the parent still holds it */
    close(hold->lock->fd);    /* as if it had died */
    hold->lock->fd = -1;
    publish_all(store, 3, 3);
    assert_steps(s, "c3");
    format_hold_close(hold);
    close(ends[1]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    dcp_store_close(store);
}

/* If nothing can be written, a step can be held nevertheless; and one without about.json can be
 * read, although nothing holds it. */
static void what_cannot_be_written(void **state) {
    struct scratch *s = *state;
    char path[200];
    bool gone;
    dcp_store *store = open_store(s, 1, 0);
    publish_all(store, 1, 1);
    path_in(s, "step-00000001/about.json", path);
    assert_int_equal(chmod(path, 0444), 0);
    format_hold *hold = hold_step(s, "step-00000001");
    publish_all(store, 2, 2);
    assert_steps(s, "c1 c2");
    format_hold_close(hold);
    path_in(s, "step-00000002/about.json", path);
    assert_int_equal(unlink(path), 0);
    path_in(s, "step-00000002", path);
    hold = format_hold_open(path, 1, &gone);
    assert_non_null(hold);
    assert_null(hold->lock);
    format_hold_close(hold);
    publish_all(store, 3, 3);
    assert_steps(s, "c3");
    path_in(s, "step-00000009", path);
    assert_null(format_hold_open(path, 1, &gone));
    assert_int_equal(gone, 1);
    dcp_store_close(store);
}

static dcp_pin *pin_step(const struct scratch *s, const char *name) {
    char path[200];
    dcp_pin *pin = NULL;
    dcp_error err;
    path_in(s, name, path);
    if (dcp_step_pin(path, &pin, &err)) fail_msg("%s", err.message);
    return pin;
}

static void pinned_steps_stay(void **state) {
    struct scratch *s = *state;
    dcp_store *store = open_store(s, 1, 0);
    publish_all(store, 1, 1);
    dcp_pin *first = pin_step(s, "step-00000001"), *latest = pin_step(s, "latest");
    publish_all(store, 2, 3);
    assert_steps(s, "c1 c3");
    dcp_step_unpin(first);
    publish_all(store, 4, 4);
    assert_steps(s, "c1 c4");
    dcp_step_unpin(latest);
    publish_all(store, 5, 5);
    assert_steps(s, "c5");
    dcp_step_unpin(NULL);
    dcp_store_close(store);
}

/* The child has the pin's memory, but not the pin; what it does with the memory changes nothing. */
static void a_child_pins_nothing(void **state) {
    struct scratch *s = *state;
    int ends[2], status;
    char byte = 0;
    dcp_store *store = open_store(s, 1, 0);
    publish_all(store, 1, 1);
    dcp_pin *pin = pin_step(s, "step-00000001");
    pid_t child = fork();
    if (child == 0) {
        dcp_step_unpin(pin);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    publish_all(store, 2, 2);
    assert_steps(s, "c1 c2");
    assert_int_equal(pipe(ends), 0);
    child = fork();
    if (child == 0) {
        close(ends[1]);
        _exit(read(ends[0], &byte, 1) == 0 ? 0 : 1); /* lives until the parent closes its end */
    }
    dcp_step_unpin(pin);
    publish_all(store, 3, 3);
    assert_steps(s, "c3");
    close(ends[1]);
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    dcp_store_close(store);
}

static void assert_no_pin(const char *path, int expected) {
    dcp_pin *pin;
    dcp_error err;
    assert_int_equal(dcp_step_pin(path, &pin, &err), expected);
    assert_int_equal(err.status, expected);
    assert_non_null(strstr(err.message, path ? path : "NULL"));
    assert_string_equal(err.path, path ? path : "");
}

static void what_cannot_be_pinned(void **state) {
    struct scratch *s = *state;
    char path[200];
    dcp_pin *pin;
    dcp_store *store = open_store(s, 1, 0);
    publish_all(store, 1, 1);
    assert_no_pin(NULL, DCP_ERR_ARG);
    path_in(s, "step-00000001", path);
    assert_int_equal(dcp_step_pin(path, NULL, NULL), DCP_ERR_ARG);
    path_in(s, "step-00000009", path);
    assert_no_pin(path, DCP_ERR_NOT_FOUND);
    assert_int_equal(dcp_step_pin(path, &pin, NULL), DCP_ERR_NOT_FOUND);
    assert_no_pin(s->dir, DCP_ERR_NOT_FOUND); /* no step */
    dcp_store_close(store);
}

static io_lock_file *claim;
static int claimed_in = -1; /* the store's directory */

static void claim_step(const struct scratch *s, const char *name) {
    claimed_in = open(s->dir, O_RDONLY | O_DIRECTORY);
    assert_int_equal(format_hold_claim(claimed_in, name, &claim), 1);
    assert_non_null(claim);
    assert_false(format_hold_is_held(claimed_in, name)); /* by a reader */
}

static void end_claim(void) {
    format_hold_unclaim(claim);
    claim = NULL;
    close(claimed_in);
}

static void what_is_held_cannot_be_claimed(void **state) {
    struct scratch *s = *state;
    dcp_store *store = open_store(s, 0, 0);
    publish_all(store, 1, 1);
    dcp_pin *pin = pin_step(s, "step-00000001");
    const int dir = open(s->dir, O_RDONLY | O_DIRECTORY);
    assert_int_equal(format_hold_claim(dir, "step-00000001", &claim), 0);
    assert_null(claim);
    dcp_step_unpin(pin);
    claim_step(s, "step-00000001");
    end_claim();
    assert_int_equal(format_hold_claim(dir, "step-00000009", &claim), 1); /* nothing to lock */
    assert_null(claim);
    close(dir);
    dcp_store_close(store);
}

/* As if another user had written about.json. */
static void what_may_not_be_written_is_asked_about(void **state) {
    struct scratch *s = *state;
    char path[200];
    int status;
    dcp_store *store = open_store(s, 0, 0);
    publish_all(store, 1, 2);
    for (int step = 1; step <= 2; step++) {
        snprintf(path, sizeof path, "%s/step-%08d/about.json", s->dir, step);
        assert_int_equal(chmod(path, 0444), 0);
    }
    dcp_pin *pin = pin_step(s, "step-00000002");
    const int dir = open(s->dir, O_RDONLY | O_DIRECTORY);
    const pid_t child = fork();
    if (child == 0) {
        if (geteuid() == 0 && setuid(65534)) _exit(1);
        if (!format_hold_claim(dir, "step-00000001", &claim) || claim) _exit(2);
        _exit(format_hold_claim(dir, "step-00000002", &claim) || claim ? 3 : 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    dcp_step_unpin(pin);
    close(dir);
    dcp_store_close(store);
}

static void a_reader_waits_for_a_claim_to_end(void **state) {
    struct scratch *s = *state;
    dcp_store *store = open_store(s, 1, 0);
    publish_all(store, 1, 1);
    claim_step(s, "step-00000001");
    meanwhile = end_claim;
    dcp_pin *pin = pin_step(s, "step-00000001");
    assert_null(claim);
    publish_all(store, 2, 2);
    assert_steps(s, "c1 c2");
    dcp_step_unpin(pin);
    dcp_store_close(store);
}

static void lose_name(void) {
    assert_int_equal(renameat(claimed_in, "step-00000001", claimed_in, ".gone"), 0);
}

static void point_latest(void) {
    lose_name();
    assert_int_equal(unlinkat(claimed_in, "latest", 0), 0);
    assert_int_equal(symlinkat("step-00000002", claimed_in, "latest"), 0);
}

static void what_goes_is_not_found(void **state) {
    struct scratch *s = *state;
    char path[200];
    dcp_store *store = open_store(s, 0, 0);
    publish_all(store, 1, 1);
    path_in(s, "step-00000001", path);
    claim_step(s, "step-00000001");
    meanwhile = lose_name;
    assert_no_pin(path, DCP_ERR_NOT_FOUND);
    assert_int_equal(renameat(claimed_in, ".gone", claimed_in, "step-00000001"), 0);
    publish_all(store, 2, 2);
    assert_int_equal(unlinkat(claimed_in, "latest", 0), 0);
    assert_int_equal(symlinkat("step-00000001", claimed_in, "latest"), 0);
    meanwhile = point_latest;
    dcp_pin *pin = pin_step(s, "latest"); /* what "latest" means by now */
    const int dir = open(s->dir, O_RDONLY | O_DIRECTORY);
    assert_true(format_hold_is_held(dir, "step-00000002"));
    close(dir);
    dcp_step_unpin(pin);
    end_claim();
    dcp_store_close(store);
}

/* A stopped writer stops no reader; what it has claimed counts as removed. */
static void a_claim_that_stays_is_not_waited_for(void **state) {
    struct scratch *s = *state;
    char path[200];
    dcp_checkpoint *ckpt;
    dcp_error err;
    dcp_store *store = open_store(s, 0, 0);
    publish_all(store, 1, 1);
    path_in(s, "step-00000001", path);
    claim_step(s, "step-00000001");
    assert_no_pin(path, DCP_ERR_NOT_FOUND);
    assert_int_equal(dcp_checkpoint_open(s->comm, path, &ckpt, &err), DCP_ERR_NOT_FOUND);
    assert_non_null(strstr(err.message, "its store's writer is removing it"));
    assert_int_equal(dcp_checkpoint_open_private(s->comm, path, &ckpt, &err), DCP_ERR_NOT_FOUND);
    end_claim();
    dcp_step_unpin(pin_step(s, "step-00000001"));
    dcp_store_close(store);
}

/* A claim belongs to its process, not to processes that are forked from it. */
static void a_claim_ends_with_its_process(void **state) {
    struct scratch *s = *state;
    int ready[2], status;
    char byte;
    dcp_store *store = open_store(s, 0, 0);
    publish_all(store, 1, 1);
    assert_int_equal(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
        claim_step(s, "step-00000001");
        const pid_t grandchild = fork();
        if (grandchild == 0) {
            close(ready[1]);
            for (;;) pause();
        }
        if (write(ready[1], &grandchild, sizeof grandchild) != sizeof grandchild) _exit(1);
        for (;;) pause();
    }
    close(ready[1]);
    pid_t grandchild;
    assert_int_equal(read(ready[0], &grandchild, sizeof grandchild), sizeof grandchild);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(read(ready[0], &byte, 1), 0); /* the other end is closed */
    dcp_step_unpin(pin_step(s, "step-00000001"));
    assert_int_equal(kill(grandchild, SIGKILL), 0);
    close(ready[0]);
    dcp_store_close(store);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        scratch_test(keep_leaves_what_is_held),
        scratch_test(several_readers_hold_a_step),
        scratch_test(what_is_replaced_can_still_be_read),
        scratch_test(a_start_leaves_what_is_held),
        scratch_test(a_save_that_needs_its_name_leaves_what_is_held),
        scratch_test(abandoned_steps_stay_while_held),
        scratch_test(a_child_does_not_hold),
        scratch_test(what_cannot_be_written),
        scratch_test(pinned_steps_stay),
        scratch_test(a_child_pins_nothing),
        scratch_test(what_cannot_be_pinned),
        scratch_test(what_is_held_cannot_be_claimed),
        scratch_test(what_may_not_be_written_is_asked_about),
        scratch_test(a_reader_waits_for_a_claim_to_end),
        scratch_test(what_goes_is_not_found),
        scratch_test(a_claim_that_stays_is_not_waited_for),
        scratch_test(a_claim_ends_with_its_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
