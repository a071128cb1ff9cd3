/* Which steps are removed for a save that has no room, and in which order; what must not be removed
 * is kept, and named if it is held. */
#include "store/remove.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/syscall.h>

#include "format/hold.h"
#include "store/retention.h"
#include "support/store_fixture.h"

static const char *stuck = ""; /* no entry of that name can be renamed */

/* Replaces the C library's function. */
int renameat(int a, const char *from, int b, const char *to) {
    if (strcmp(from, stuck) != 0) return (int)syscall(SYS_renameat2, a, from, b, to, 0);
    errno = EIO;
    return -1;
}

static int make_room(dcp_store *store, uint64_t *from) {
    int made = -1;
    dcp_error err = {0};
    if (store_free_space(store, from, &made, &err)) fail_msg("%s", err.message);
    return made;
}

static void the_oldest_goes_first(void **state) {
    struct scratch *s = *state;
    uint64_t from = 0;
    dcp_store *store = open_store(s, 0, 0);
    publish_all(store, 1, 4);
    assert_int_equal(make_room(store, &from), 1);
    assert_steps(s, "c2 c3 c4");
    assert_non_null(strstr(s->log, "step-00000001 is given up to make room"));
    assert_int_equal(make_room(store, &from), 1);
    assert_int_equal(make_room(store, &from), 1);
    assert_steps(s, "c4");
    assert_int_equal(make_room(store, &from), 0); /* the newest stays */
    assert_steps(s, "c4");
    dcp_store_close(store);
}

/* What was set aside, or is about to be, is removed first. */
static void later_steps_of_a_run_that_went_back(void **state) {
    struct scratch *s = *state;
    uint64_t from = 0;
    dcp_store *store = open_store(s, 0, 0);
    publish_all(store, 1, 5);
    assert_int_equal(dcp_store_continue_from(store, 4, NULL), DCP_OK);
    publish_all(store, 5, 5);
    assert_int_equal(dcp_store_continue_from(store, 3, NULL), DCP_OK);
    assert_steps(s, "c1 c2 c3 c4 c5 a5");
    assert_int_equal(dcp_store_mark_intact(store, 2, NULL), DCP_OK);
    assert_int_equal(make_room(store, &from), 1);
    assert_steps(s, "c1 c2 c3 c5 a5");
    assert_int_equal(make_room(store, &from), 1);
    assert_steps(s, "c1 c2 c3");
    assert_int_equal(make_room(store, &from), 1);
    assert_steps(s, "c2 c3"); /* one is known to be intact, one is the newest */
    assert_int_equal(make_room(store, &from), 0);
    dcp_store_close(store);
}

static void what_is_held_or_pinned_stays(void **state) {
    struct scratch *s = *state;
    char path[200];
    bool gone;
    uint64_t from = 0;
    dcp_error err = {.status = DCP_ERR_NO_SPACE, .message = "no room", .rank = 0};
    dcp_store *store = open_store(s, 0, 0);
    publish_all(store, 1, 4);
    store_pin(store, 1);
    snprintf(path, sizeof path, "%s/step-00000002", s->dir);
    format_hold *hold = format_hold_open(path, 1, &gone);
    assert_int_equal(make_room(store, &from), 1);
    assert_steps(s, "c1 c2 c4");
    assert_int_equal(make_room(store, &from), 0);
    store_explain_no_space(store, &err);
    assert_int_equal(err.status, DCP_ERR_NO_SPACE);
    assert_string_equal(err.message,
                        "no room; readers hold step-00000002, which can't be given up");
    format_hold_close(hold);
    strcpy(err.message, "no room");
    store_explain_no_space(store, &err);
    assert_string_equal(err.message, "no room");
    dcp_store_close(store);
}

static void what_cannot_be_removed_makes_no_room(void **state) {
    struct scratch *s = *state;
    uint64_t from = 0;
    dcp_store *store = open_store(s, 0, 0);
    publish_all(store, 1, 3);
    stuck = "step-00000001";
    assert_int_equal(make_room(store, &from), 1);
    assert_steps(s, "c1 c3");
    assert_non_null(strstr(s->log, "an old step stays: "));
    assert_null(strstr(s->log, "step-00000001 is given up"));
    from = 0;
    assert_int_equal(make_room(store, &from), 0);
    stuck = "";
    assert_steps(s, "c1 c3");
    dcp_store_close(store);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        scratch_test(the_oldest_goes_first),
        scratch_test(later_steps_of_a_run_that_went_back),
        scratch_test(what_is_held_or_pinned_stays),
        scratch_test(what_cannot_be_removed_makes_no_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
