/* Who takes part in dcp-run's next start: a test for each rule. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/hosts/cluster.h"
#include "programs/program.h"
#include "support/folder_fixture.h"
#include "support/stderr_text.h"

static void write_hosts(const char *text) {
    FILE *file = fopen(in_folder("hosts"), "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

/* A cluster over a host file with `text`; NULL: without one. */
static launcher_cluster *open_cluster(const char *text, launcher_on_failure on_failure, int ranks,
                                      int min, int max) {
    static char path[512];
    launcher_cluster *c;
    snprintf(path, sizeof path, "%s", in_folder("hosts"));
    if (text) write_hosts(text);
    const launcher_cluster_options options = {.ranks = ranks,
                                              .min = min,
                                              .max = max,
                                              .hosts_file = text ? path : NULL,
                                              .on_failure = on_failure};
    assert_int_equal(launcher_cluster_open(&c, &options), 0);
    return c;
}

static launcher_cluster *open_same(const char *text, int ranks) {
    return open_cluster(text, LAUNCHER_ON_FAILURE_SAME, ranks, 0, 0);
}

static launcher_cluster *open_shrink(const char *text, int ranks, int min) {
    return open_cluster(text, LAUNCHER_ON_FAILURE_SHRINK, ranks, min, 0);
}

static void is_placed(launcher_cluster *c, const char *want) {
    launcher_placement placed;
    char got[1024];
    int sum = 0;
    assert_int_equal(launcher_cluster_place(c, &placed), 0);
    snprintf(got, sizeof got, "%d", placed.ranks);
    for (size_t i = 0; i < placed.n; i++) {
        snprintf(got + strlen(got), sizeof got - strlen(got), " %s:%d", placed.at[i].name,
                 placed.at[i].slots);
        sum += placed.at[i].slots;
    }
    if (placed.n > 0) assert_int_equal(sum, placed.ranks);
    launcher_placement_free(&placed);
    assert_string_equal(got, want);
}

/* The state of a host, as `ctl status` shows it. */
static void is_in_state(launcher_cluster *c, const char *host, const char *want) {
    json_t *list = launcher_cluster_status(c), *row;
    size_t i;
    char got[256] = "not listed";
    json_array_foreach(list, i, row) {
        if (strcmp(json_string_value(json_object_get(row, "host")), host) == 0)
            snprintf(got, sizeof got, "%s", json_string_value(json_object_get(row, "state")));
    }
    json_decref(list);
    assert_string_equal(got, want);
}

static void is_advised(launcher_cluster *c, const char *want) {
    char text[512];
    launcher_cluster_advice(c, text, sizeof text);
    if (*want ? !strstr(text, want) : *text) fail_msg("no '%s' in: %s", want, text);
}

/* A change counts at the second look. */
static int changed_to(launcher_cluster *c, const char *text) {
    write_hosts(text);
    assert_int_equal(launcher_cluster_refresh(c), 0);
    return launcher_cluster_refresh(c);
}

static const char three[] = "a slots=2\nb slots=2\nc slots=2\n";

/* Without a host file. */

static void one_host_has_no_limits(void **state) {
    (void)state;
    launcher_cluster *c = open_same(NULL, 64);
    is_placed(c, "64");
    launcher_cluster_rank_failed(c, "whatever");
    launcher_cluster_host_lost(c, "whatever");
    is_placed(c, "64");
    assert_int_equal(launcher_cluster_refresh(c), 0);
    is_advised(c, "");
    launcher_cluster_close(c);
}

static void one_host_shrinks_by_the_dead(void **state) {
    (void)state;
    launcher_cluster *c = open_shrink(NULL, 4, 2);
    is_placed(c, "4");
    launcher_cluster_rank_failed(c, "");
    is_placed(c, "3");
    launcher_cluster_rank_failed(c, "");
    is_placed(c, "2");
    launcher_cluster_rank_failed(c, "");
    is_placed(c, "2"); /* min */
    launcher_cluster_close(c);
}

static void a_last_rank_is_started_again(void **state) {
    (void)state;
    launcher_cluster *c = open_shrink(NULL, 1, 0);
    for (int i = 0; i < 3; i++) {
        is_placed(c, "1");
        launcher_cluster_rank_failed(c, "");
    }
    launcher_cluster_close(c);
}

/* Same. */

static void hosts_are_filled_in_their_order(void **state) {
    (void)state;
    launcher_cluster *c = open_same("a slots=2\nb slots=0\nc slots=3\nd slots=1\n", 4);
    is_placed(c, "4 a:2 c:2");
    is_in_state(c, "a", "in use");
    is_in_state(c, "d", "free");
    launcher_cluster_rank_failed(c, "a");
    is_placed(c, "4 a:2 c:2"); /* a rank's death takes no slot */
    launcher_cluster_close(c);
}

static void free_slots_replace_a_lost_host(void **state) {
    (void)state;
    launcher_cluster *c = open_same(three, 4);
    is_placed(c, "4 a:2 b:2");
    launcher_cluster_host_lost(c, "a");
    is_placed(c, "4 b:2 c:2");
    is_in_state(c, "a", "left out: does not answer");
    launcher_cluster_rank_failed(c, "b");
    is_placed(c, "4 b:2 c:2"); /* and stays left out */
    launcher_cluster_close(c);
}

static void a_lost_host_is_tried_again_where_none_replaces_it(void **state) {
    (void)state;
    launcher_cluster *c = open_same(three, 5);
    is_placed(c, "5 a:2 b:2 c:1");
    launcher_cluster_host_lost(c, "b");
    is_advised(
        c, "host b does not answer, and the others have 4 slots for 5 ranks: --on-failure shrink");
    is_placed(c, "5 a:2 b:2 c:1");
    is_advised(c, "--on-failure shrink");
    launcher_cluster_progressed(c);
    is_in_state(c, "b", "in use");
    is_advised(c, "");
    launcher_cluster_close(c);
}

static void a_host_that_fails_twice_in_a_row_is_replaced(void **state) {
    (void)state;
    launcher_cluster *c = open_same(three, 4);
    is_placed(c, "4 a:2 b:2");
    launcher_cluster_rank_failed(c, "a");
    is_placed(c, "4 a:2 b:2");
    launcher_cluster_rank_failed(c, "a");
    is_placed(c, "4 b:2 c:2");
    is_in_state(c, "a", "left out: its ranks failed in two starts in a row");
    launcher_cluster_close(c);
}

static void progress_and_starts_without_failure_end_a_row(void **state) {
    (void)state;
    launcher_cluster *c = open_same(three, 4);
    is_placed(c, "4 a:2 b:2");
    launcher_cluster_rank_failed(c, "a");
    is_placed(c, "4 a:2 b:2");
    launcher_cluster_progressed(c);
    launcher_cluster_rank_failed(c, "a");
    is_placed(c, "4 a:2 b:2");
    launcher_cluster_rank_failed(c, "b");
    is_placed(c, "4 a:2 b:2");
    launcher_cluster_rank_failed(c, "a");
    is_placed(c, "4 a:2 b:2");
    launcher_cluster_close(c);
}

/* A program that fails everywhere is no host's fault. */
static void no_host_is_to_blame_where_all_ranks_fail(void **state) {
    (void)state;
    launcher_cluster *c = open_shrink(three, 4, 0);
    for (int i = 0; i < 3; i++) {
        is_placed(c, "4 a:2 b:2");
        for (int r = 0; r < 2; r++) launcher_cluster_rank_failed(c, "a");
        for (int r = 0; r < 2; r++) launcher_cluster_rank_failed(c, "b");
    }
    is_placed(c, "4 a:2 b:2");
    launcher_cluster_close(c);
}

/* Shrink. */

static void a_death_takes_its_slot(void **state) {
    (void)state;
    launcher_cluster *c = open_shrink(three, 6, 0);
    is_placed(c, "6 a:2 b:2 c:2");
    launcher_cluster_rank_failed(c, "b");
    is_placed(c, "5 a:2 b:1 c:2");
    launcher_cluster_progressed(c);
    launcher_cluster_rank_failed(c, "c");
    launcher_cluster_rank_failed(c, "c");
    is_placed(c, "3 a:2 b:1");
    is_in_state(c, "c", "left out: its ranks failed");
    launcher_cluster_close(c);
}

static void a_death_is_one_rank_less_beside_free_slots(void **state) {
    (void)state;
    launcher_cluster *c = open_shrink("a slots=8\n", 4, 0);
    is_placed(c, "4 a:4");
    launcher_cluster_rank_failed(c, "a");
    is_placed(c, "3 a:3");
    launcher_cluster_close(c);
}

static void a_lost_host_is_left_out_whole(void **state) {
    (void)state;
    launcher_cluster *c = open_shrink(three, 6, 0);
    is_placed(c, "6 a:2 b:2 c:2");
    launcher_cluster_host_lost(c, "a");
    launcher_cluster_rank_failed(c, "a"); /* counts no more than the host */
    is_placed(c, "4 b:2 c:2");
    is_advised(c, "");
    launcher_cluster_progressed(c);
    launcher_cluster_host_lost(c, "c");
    is_placed(c, "2 b:2");
    launcher_cluster_close(c);
}

static void free_slots_replace_a_lost_host_when_shrinking_too(void **state) {
    (void)state;
    launcher_cluster *c = open_shrink(three, 3, 0);
    is_placed(c, "3 a:2 b:1");
    launcher_cluster_host_lost(c, "a");
    is_placed(c, "3 b:2 c:1");
    launcher_cluster_close(c);
}

static void a_host_that_fails_twice_in_a_row_is_left_out_whole(void **state) {
    (void)state;
    launcher_cluster *c = open_shrink("a slots=4\nb slots=2\n", 6, 0);
    is_placed(c, "6 a:4 b:2");
    launcher_cluster_rank_failed(c, "a");
    is_placed(c, "5 a:3 b:2");
    launcher_cluster_rank_failed(c, "a");
    is_placed(c, "2 b:2");
    launcher_cluster_close(c);
}

static void min_keeps_what_failed(void **state) {
    (void)state;
    launcher_cluster *c = open_shrink(three, 6, 5);
    is_placed(c, "6 a:2 b:2 c:2");
    launcher_cluster_rank_failed(c, "a");
    is_placed(c, "5 a:1 b:2 c:2");
    launcher_cluster_rank_failed(c, "b");
    is_placed(c, "5 a:1 b:2 c:2"); /* a slot that failed is used again */
    launcher_cluster_progressed(c);
    launcher_cluster_host_lost(c, "c");
    is_placed(c, "5 a:1 b:2 c:2"); /* and a host */
    is_advised(c, "host c does not answer, and --min 5");
    launcher_cluster_close(c);
}

static void is_tried_next(launcher_cluster *c, const char *want) {
    char text[64];
    assert_int_equal(launcher_cluster_refused(c, text, sizeof text), want != NULL);
    if (want) assert_string_equal(text, want);
}

static void what_is_refused_is_spread_and_then_fewer(void **state) {
    (void)state;
    launcher_cluster *c = open_shrink("a slots=2\nb slots=2\n", 4, 2);
    is_placed(c, "4 a:2 b:2");
    launcher_cluster_rank_failed(c, "a");
    is_placed(c, "3 a:1 b:2");
    is_tried_next(c, "2 ranks, spread evenly"); /* three of two hosts are as even as can be */
    is_placed(c, "2 a:1 b:1");
    is_tried_next(c, "4 ranks, with the slots whose ranks died"); /* min */
    is_placed(c, "4 a:2 b:2");
    is_tried_next(c, "3 ranks, spread evenly");
    is_placed(c, "3 a:2 b:1");
    is_tried_next(c, "2 ranks, spread evenly");
    is_placed(c, "2 a:1 b:1");
    is_tried_next(c, NULL); /* not for ever */
    launcher_cluster_close(c);
    c = open_shrink("a\nb\n", 2, 1);
    for (int turn = 0; turn < 3; turn++) {
        is_placed(c, "2 a:1 b:1");
        launcher_cluster_progressed(c);
        launcher_cluster_rank_failed(c, "a");
        is_placed(c, "1 b:1");
        is_tried_next(c, "2 ranks, with the slots whose ranks died");
    }
    launcher_cluster_close(c);
    c = open_shrink("a slots=3\nb slots=3\nc slots=3\n", 6, 1);
    is_placed(c, "6 a:3 b:3");
    is_tried_next(c, "6 ranks, spread evenly");
    is_placed(c, "6 a:2 b:2 c:2");
    is_tried_next(c, "5 ranks, spread evenly");
    is_placed(c, "5 a:2 b:2 c:1");
    is_tried_next(c, "4 ranks, spread evenly");
    is_placed(c, "4 a:2 b:1 c:1");
    launcher_cluster_rank_failed(c, "a");
    is_placed(c, "3 a:1 b:1 c:1"); /* evenly from then on */
    assert_int_equal(changed_to(c, "a slots=3\nb slots=3\nc slots=4\n"), 1);
    is_placed(c, "6 a:3 b:2 c:1"); /* and anew with other hosts */
    launcher_cluster_close(c);
}

static void hosts_are_filled_evenly_where_that_is_asked_for(void **state) {
    (void)state;
    char path[512];
    launcher_cluster *c;
    snprintf(path, sizeof path, "%s", in_folder("hosts"));
    write_hosts("a slots=3\nb slots=1\nc slots=3\n");
    const launcher_cluster_options options = {
        .ranks = 4, .hosts_file = path, .evenly = 1, .on_failure = LAUNCHER_ON_FAILURE_SHRINK};
    assert_int_equal(launcher_cluster_open(&c, &options), 0);
    is_placed(c, "4 a:2 b:1 c:1");
    launcher_cluster_rank_failed(c, "a");
    is_placed(c, "3 a:1 b:1 c:1");
    launcher_cluster_host_lost(c, "b");
    is_placed(c, "3 a:2 c:1"); /* no rank moves that need not */
    launcher_cluster_close(c);
}

static void nothing_else_is_tried_where_ranks_stay_the_same(void **state) {
    (void)state;
    launcher_cluster *c = open_same(three, 4);
    is_placed(c, "4 a:2 b:2");
    is_tried_next(c, NULL);
    launcher_cluster_close(c);
    c = open_shrink(NULL, 4, 2);
    is_placed(c, "4");
    is_tried_next(c, "3 ranks, spread evenly");
    is_placed(c, "3");
    launcher_cluster_close(c);
}

static void advice_without_any_host_is_to_mend_one(void **state) {
    (void)state;
    launcher_cluster *c = open_same("a slots=2\n", 2);
    is_placed(c, "2 a:2");
    launcher_cluster_host_lost(c, "a");
    is_advised(c, "host a does not answer, and no other is left: repair it, or change ");
    launcher_cluster_close(c);
}

static void shrink_begins_with_what_is_there(void **state) {
    (void)state;
    stderr_text_begin();
    launcher_cluster *c = open_shrink(three, 8, 6);
    assert_non_null(strstr(stderr_text_end(), "with as many ranks, not with 8"));
    is_placed(c, "6 a:2 b:2 c:2");
    assert_int_equal(changed_to(c, "a slots=2\nb slots=2\nc slots=8\n"), 1);
    is_placed(c, "8 a:2 b:2 c:4");
    launcher_cluster_close(c);
}

/* A changed file. */

static void a_changed_file_is_used_when_found_twice(void **state) {
    (void)state;
    launcher_cluster *c = open_same(three, 4);
    is_placed(c, "4 a:2 b:2");
    assert_int_equal(launcher_cluster_refresh(c), 0);
    write_hosts("b slots=2\nd slots=2\n");
    assert_int_equal(launcher_cluster_refresh(c), 0);
    write_hosts("b slots=2\nd slots=4\n");
    assert_int_equal(launcher_cluster_refresh(c), 0); /* it is still being written */
    assert_int_equal(launcher_cluster_refresh(c), 1);
    assert_int_equal(launcher_cluster_refresh(c), 0);
    is_placed(c, "4 b:2 d:2");
    is_in_state(c, "a", "not listed");
    launcher_cluster_close(c);
}

static void a_start_reads_the_file_at_once(void **state) {
    (void)state;
    launcher_cluster *c = open_same(three, 4);
    is_placed(c, "4 a:2 b:2");
    launcher_cluster_host_lost(c, "a");
    write_hosts("d slots=2\nb slots=2\n");
    is_placed(c, "4 d:2 b:2");
    launcher_cluster_close(c);
}

static void a_change_that_moves_no_rank_restarts_nothing(void **state) {
    (void)state;
    launcher_cluster *c = open_same(three, 4);
    is_placed(c, "4 a:2 b:2");
    assert_int_equal(changed_to(c, "z slots=9\nb slots=2\na slots=8 # more\n"), 0);
    is_placed(c, "4 b:2 a:2");
    launcher_cluster_close(c);
}

static void a_change_makes_good_what_was_left_out(void **state) {
    (void)state;
    launcher_cluster *c = open_shrink(three, 6, 0);
    is_placed(c, "6 a:2 b:2 c:2");
    launcher_cluster_rank_failed(c, "a");
    launcher_cluster_host_lost(c, "c");
    is_placed(c, "3 a:1 b:2");
    assert_int_equal(changed_to(c, "a slots=2\nb slots=2\nc slots=2\n# mended\n"), 1);
    is_placed(c, "6 a:2 b:2 c:2");
    launcher_cluster_close(c);
}

static void fewer_slots_are_fewer_ranks_down_to_min(void **state) {
    (void)state;
    launcher_cluster *c = open_cluster(three, LAUNCHER_ON_FAILURE_SAME, 6, 3, 0);
    is_placed(c, "6 a:2 b:2 c:2");
    assert_int_equal(changed_to(c, "a slots=2\nb slots=2\n"), 1);
    is_placed(c, "4 a:2 b:2");
    stderr_text_begin();
    assert_int_equal(changed_to(c, "a slots=2\n"), 0);
    assert_non_null(strstr(stderr_text_end(), "fewer than --min 3"));
    is_placed(c, "4 a:2 b:2");
    assert_int_equal(changed_to(c, three), 1);
    is_placed(c, "6 a:2 b:2 c:2");
    launcher_cluster_close(c);
}

static void more_slots_are_more_ranks_up_to_max(void **state) {
    (void)state;
    launcher_cluster *c = open_cluster(three, LAUNCHER_ON_FAILURE_SAME, 4, 0, 8);
    is_placed(c, "4 a:2 b:2"); /* c is free, but nothing has changed */
    assert_int_equal(changed_to(c, "a slots=2\nb slots=2\nc slots=2\nd slots=1\n"), 1);
    is_placed(c, "7 a:2 b:2 c:2 d:1");
    assert_int_equal(changed_to(c, "a slots=2\nb slots=2\nc slots=2\nd slots=9\n"), 1);
    is_placed(c, "8 a:2 b:2 c:2 d:2");
    launcher_cluster_close(c);
}

static void a_file_of_no_use_is_told_once(void **state) {
    (void)state;
    launcher_cluster *c = open_same(three, 4);
    is_placed(c, "4 a:2 b:2");
    stderr_text_begin();
    assert_int_equal(changed_to(c, "a slots=2\nb slts=2\n"), 0);
    const char *message = stderr_text_end();
    assert_non_null(strstr(message, "hosts:2: unknown word 'slts'"));
    assert_non_null(strstr(message, "continues with the hosts that it knows"));
    stderr_text_begin();
    for (int i = 0; i < 3; i++) assert_int_equal(launcher_cluster_refresh(c), 0);
    assert_string_equal(stderr_text_end(), "");
    assert_int_equal(unlink(in_folder("hosts")), 0);
    stderr_text_begin();
    for (int i = 0; i < 4; i++) assert_int_equal(launcher_cluster_refresh(c), 0);
    message = strstr(stderr_text_end(), "cannot read the host file");
    assert_non_null(message);
    assert_null(strstr(message + 1, "cannot read the host file"));
    is_placed(c, "4 a:2 b:2");
    assert_int_equal(changed_to(c, "c slots=4\n"), 1);
    is_placed(c, "4 c:4");
    launcher_cluster_close(c);
}

/* Resize. */

static void is_not_resized(launcher_cluster *c, int ranks, const char *want) {
    char why[256] = "";
    assert_int_equal(launcher_cluster_resize(c, ranks, why, sizeof why), -1);
    if (!strstr(why, want)) fail_msg("no '%s' in: %s", want, why);
}

static void a_resize_counts_from_then_on(void **state) {
    (void)state;
    char why[256];
    launcher_cluster *c = open_shrink("a slots=4\nb slots=4\n", 4, 0);
    is_placed(c, "4 a:4");
    assert_int_equal(launcher_cluster_resize(c, 8, why, sizeof why), 0);
    is_placed(c, "8 a:4 b:4");
    launcher_cluster_rank_failed(c, "a");
    is_placed(c, "7 a:3 b:4");
    is_not_resized(c, 9, "9 ranks are more than the 8 slots of");
    assert_int_equal(launcher_cluster_resize(c, 8, why, sizeof why), 0);
    is_placed(c, "8 a:4 b:4"); /* the dead rank's slot is used again */
    assert_int_equal(launcher_cluster_resize(c, 3, why, sizeof why), 0);
    is_placed(c, "3 a:3");
    assert_int_equal(changed_to(c, "a slots=9\nb slots=4\n"), 0); /* 3 were asked for */
    launcher_cluster_host_lost(c, "a");
    is_placed(c, "3 b:3");
    is_not_resized(c, 5, "4 slots of");
    is_not_resized(c, 5, "without the hosts that are left out");
    is_not_resized(c, 0, "0 is not a number of ranks");
    launcher_cluster_close(c);
}

static void hosts_that_the_next_start_leaves_are_counted(void **state) {
    (void)state;
    char why[256];
    launcher_cluster *c = open_cluster(three, LAUNCHER_ON_FAILURE_SAME, 6, 0, 0);
    is_placed(c, "6 a:2 b:2 c:2");
    assert_int_equal(launcher_cluster_dropped(c), 0);
    assert_int_equal(launcher_cluster_resize(c, 5, why, sizeof why), 0);
    assert_int_equal(launcher_cluster_dropped(c), 0);
    assert_int_equal(launcher_cluster_resize(c, 2, why, sizeof why), 0);
    assert_int_equal(launcher_cluster_dropped(c), 2);
    is_placed(c, "2 a:2");
    assert_int_equal(changed_to(c, "d slots=2\n"), 1);
    assert_int_equal(launcher_cluster_dropped(c), 1);
    is_placed(c, "2 d:2");
    assert_int_equal(launcher_cluster_dropped(c), 0);
    launcher_cluster_close(c);
    c = open_same(NULL, 4);
    is_placed(c, "4");
    assert_int_equal(launcher_cluster_resize(c, 1, why, sizeof why), 0);
    assert_int_equal(launcher_cluster_dropped(c), 0);
    launcher_cluster_close(c);
}

static void a_resize_keeps_to_what_was_given(void **state) {
    (void)state;
    char why[256];
    launcher_cluster *c = open_cluster(NULL, LAUNCHER_ON_FAILURE_SAME, 4, 2, 6);
    is_placed(c, "4");
    is_not_resized(c, 1, "--min 2");
    is_not_resized(c, 7, "--max 6");
    is_placed(c, "4");
    assert_int_equal(launcher_cluster_resize(c, 6, why, sizeof why), 0);
    is_placed(c, "6");
    launcher_cluster_close(c);
    c = open_same(NULL, 4);
    is_not_resized(c, 5000, "4096 slots of one host");
    assert_int_equal(launcher_cluster_resize(c, 8, why, sizeof why), 0);
    is_placed(c, "8");
    launcher_cluster_close(c);
    c = open_cluster(three, LAUNCHER_ON_FAILURE_SAME, 2, 0, 8);
    assert_int_equal(launcher_cluster_resize(c, 3, why, sizeof why), 0);
    is_placed(c, "3 a:2 b:1");
    assert_int_equal(changed_to(c, "a slots=2\nb slots=9\n"), 0); /* not up to --max */
    launcher_cluster_close(c);
}

/* The rest. */

static void waits_longer_and_longer(void **state) {
    (void)state;
    static const double want[] = {0, 0.5, 1, 2, 4, 8, 16, 30, 30};
    launcher_cluster *c = open_same(NULL, 1);
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < sizeof want / sizeof *want; i++)
            assert_true(launcher_cluster_backoff_s(c) == want[i]);
        launcher_cluster_progressed(c);
    }
    launcher_cluster_close(c);
}

static void is_refused(const char *text, launcher_cluster_options options, const char *want) {
    launcher_cluster *c;
    static char path[512];
    snprintf(path, sizeof path, "%s", in_folder("hosts"));
    if (text) write_hosts(text);
    if (text) options.hosts_file = path;
    stderr_text_begin();
    const int status = launcher_cluster_open(&c, &options);
    const char *message = stderr_text_end();
    assert_int_equal(status, PROGRAM_USAGE);
    assert_null(c);
    if (!strstr(message, want)) fail_msg("no '%s' in: %s", want, message);
}

static void nothing_starts_where_it_does_not_fit(void **state) {
    (void)state;
    const launcher_on_failure shrink = LAUNCHER_ON_FAILURE_SHRINK;
    is_refused(three, (launcher_cluster_options){.ranks = 7}, "-n 7 is above the number of slots");
    is_refused("a\nb\n", (launcher_cluster_options){.ranks = 3}, "a name alone is one slot");
    is_refused(three, (launcher_cluster_options){.ranks = 8, .min = 7, .on_failure = shrink},
               "--min 7 is above the number of slots of");
    is_refused(NULL, (launcher_cluster_options){.ranks = 2, .min = 3}, "--min 3 is above -n 2");
    is_refused(NULL, (launcher_cluster_options){.ranks = 4, .max = 3}, "--max 3 is below -n 4");
    is_refused(NULL, (launcher_cluster_options){.ranks = 4, .hosts_file = "/nowhere/hosts"},
               "/nowhere/hosts: no such file");
    unsetenv("SLURM_JOB_NODELIST");
    unsetenv("SLURM_NODELIST");
    is_refused(NULL, (launcher_cluster_options){.ranks = 4, .in_slurm = 1}, "--hosts");
    setenv("SLURM_JOB_NODELIST", "n[1-2]", 1);
    setenv("SLURM_TASKS_PER_NODE", "1(x2)", 1);
    is_refused(NULL, (launcher_cluster_options){.ranks = 4, .in_slurm = 1}, "sbatch --ntasks");
}

static void a_slurm_job_names_its_hosts(void **state) {
    (void)state;
    launcher_cluster *c;
    setenv("SLURM_JOB_NODELIST", "n[1-2]", 1);
    setenv("SLURM_TASKS_PER_NODE", "2(x2)", 1);
    const launcher_cluster_options options = {.ranks = 3, .in_slurm = 1};
    assert_int_equal(launcher_cluster_open(&c, &options), 0);
    is_placed(c, "3 n1:2 n2:1");
    assert_int_equal(launcher_cluster_refresh(c), 0);
    launcher_cluster_close(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_host_has_no_limits),
        cmocka_unit_test(one_host_shrinks_by_the_dead),
        cmocka_unit_test(a_last_rank_is_started_again),
        cmocka_unit_test(hosts_are_filled_in_their_order),
        cmocka_unit_test(free_slots_replace_a_lost_host),
        cmocka_unit_test(a_lost_host_is_tried_again_where_none_replaces_it),
        cmocka_unit_test(a_host_that_fails_twice_in_a_row_is_replaced),
        cmocka_unit_test(progress_and_starts_without_failure_end_a_row),
        cmocka_unit_test(no_host_is_to_blame_where_all_ranks_fail),
        cmocka_unit_test(a_death_takes_its_slot),
        cmocka_unit_test(a_death_is_one_rank_less_beside_free_slots),
        cmocka_unit_test(a_lost_host_is_left_out_whole),
        cmocka_unit_test(free_slots_replace_a_lost_host_when_shrinking_too),
        cmocka_unit_test(a_host_that_fails_twice_in_a_row_is_left_out_whole),
        cmocka_unit_test(min_keeps_what_failed),
        cmocka_unit_test(what_is_refused_is_spread_and_then_fewer),
        cmocka_unit_test(hosts_are_filled_evenly_where_that_is_asked_for),
        cmocka_unit_test(nothing_else_is_tried_where_ranks_stay_the_same),
        cmocka_unit_test(advice_without_any_host_is_to_mend_one),
        cmocka_unit_test(shrink_begins_with_what_is_there),
        cmocka_unit_test(a_changed_file_is_used_when_found_twice),
        cmocka_unit_test(a_start_reads_the_file_at_once),
        cmocka_unit_test(a_change_that_moves_no_rank_restarts_nothing),
        cmocka_unit_test(a_change_makes_good_what_was_left_out),
        cmocka_unit_test(fewer_slots_are_fewer_ranks_down_to_min),
        cmocka_unit_test(more_slots_are_more_ranks_up_to_max),
        cmocka_unit_test(a_file_of_no_use_is_told_once),
        cmocka_unit_test(a_resize_counts_from_then_on),
        cmocka_unit_test(hosts_that_the_next_start_leaves_are_counted),
        cmocka_unit_test(a_resize_keeps_to_what_was_given),
        cmocka_unit_test(waits_longer_and_longer),
        cmocka_unit_test(nothing_starts_where_it_does_not_fit),
        cmocka_unit_test(a_slurm_job_names_its_hosts),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
