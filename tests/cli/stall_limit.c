/* When ranks without progress are considered to hang, and which of them is behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "launcher/stall.h"

static launcher_stall stall;

static void beat(int rank, launcher_beat told, double now) {
    launcher_stall_beat(&stall, rank, &told, now);
}

static void nothing_told_is_no_stall(void **state) {
    (void)state;
    launcher_stall_begin(&stall, 5, 2);
    assert_true(launcher_stall_deadline(&stall) == 0);
}

/* A rank that hangs in MPI's setup reports only that it exists. */
static void the_first_word_of_a_rank_is_progress(void **state) {
    (void)state;
    launcher_stall_begin(&stall, 5, 2);
    beat(0, (launcher_beat){0}, 100);
    assert_true(launcher_stall_deadline(&stall) == 105);
    beat(0, (launcher_beat){0}, 101);
    assert_true(launcher_stall_deadline(&stall) == 105);
    beat(1, (launcher_beat){0}, 102);
    assert_true(launcher_stall_deadline(&stall) == 107);
}

static void a_given_limit_holds_from_the_first_progress(void **state) {
    (void)state;
    launcher_stall_begin(&stall, 5, 2);
    beat(1, (launcher_beat){.phase = RANKS_PHASE_STARTED}, 100);
    assert_true(launcher_stall_deadline(&stall) == 105);
    beat(1, (launcher_beat){.phase = RANKS_PHASE_STEPPED, .step = 1, .slowest_s = 200}, 103);
    assert_true(launcher_stall_deadline(&stall) == 108);
}

static void the_default_is_off_before_the_first_step(void **state) {
    (void)state;
    launcher_stall_begin(&stall, 0, 2);
    beat(0, (launcher_beat){.phase = RANKS_PHASE_LOADED, .progress = 7}, 100);
    assert_true(launcher_stall_deadline(&stall) == 0);
}

static void the_default_is_ten_times_the_slowest_step_and_300_s_at_least(void **state) {
    (void)state;
    launcher_stall_begin(&stall, 0, 2);
    beat(0, (launcher_beat){.step = 1, .slowest_s = 2}, 100);
    assert_true(launcher_stall_deadline(&stall) == 400);
    beat(1, (launcher_beat){.step = 1, .slowest_s = 50}, 110);
    assert_true(launcher_stall_deadline(&stall) == 610);
    beat(0, (launcher_beat){.step = 2, .slowest_s = 2}, 120);
    assert_true(launcher_stall_deadline(&stall) == 620);
}

/* A change of any of the numbers, on any rank, is progress; the same numbers again are not. */
static void progress_of_any_rank_puts_it_off(void **state) {
    (void)state;
    launcher_beat told = {.phase = RANKS_PHASE_STARTED};
    launcher_stall_begin(&stall, 10, 3);
    beat(0, told, 100);
    beat(0, told, 105);
    assert_true(launcher_stall_deadline(&stall) == 110);
    told.progress++;
    beat(2, told, 106);
    assert_true(launcher_stall_deadline(&stall) == 116);
    told.micro_batch++;
    beat(2, told, 107);
    assert_true(launcher_stall_deadline(&stall) == 117);
    told.step++;
    beat(2, told, 108);
    assert_true(launcher_stall_deadline(&stall) == 118);
    beat(2, told, 109);
    assert_true(launcher_stall_deadline(&stall) == 118);
}

static void a_new_start_begins_afresh(void **state) {
    (void)state;
    launcher_stall_begin(&stall, 0, 2);
    beat(1, (launcher_beat){.step = 9, .slowest_s = 90}, 100);
    launcher_stall_begin(&stall, 0, 2);
    assert_true(launcher_stall_deadline(&stall) == 0);
    beat(0, (launcher_beat){.step = 9, .slowest_s = 1}, 200);
    assert_true(launcher_stall_deadline(&stall) == 500);
}

static void the_rank_behind_has_the_least_step_then_micro_batch_then_progress(void **state) {
    (void)state;
    launcher_stall_begin(&stall, 5, 3);
    beat(0, (launcher_beat){.step = 4, .micro_batch = 2, .progress = 30}, 100);
    beat(1, (launcher_beat){.step = 4, .micro_batch = 1, .progress = 40}, 100);
    beat(2, (launcher_beat){.step = 4, .micro_batch = 2, .progress = 20}, 100);
    assert_int_equal(launcher_stall_behind(&stall), 1);
    beat(1, (launcher_beat){.step = 4, .micro_batch = 2, .progress = 40}, 101);
    assert_int_equal(launcher_stall_behind(&stall), 2);
    beat(0, (launcher_beat){.step = 3, .micro_batch = 9, .progress = 99}, 102);
    assert_int_equal(launcher_stall_behind(&stall), 0);
}

static void a_rank_that_has_told_nothing_is_behind(void **state) {
    (void)state;
    launcher_stall_begin(&stall, 5, 3);
    beat(0, (launcher_beat){.progress = 1}, 100);
    beat(1, (launcher_beat){.progress = 1}, 100);
    assert_int_equal(launcher_stall_behind(&stall), 2);
}

static void of_equal_ranks_none_is_behind(void **state) {
    (void)state;
    launcher_stall_begin(&stall, 5, 2);
    beat(0, (launcher_beat){.step = 4}, 100);
    beat(1, (launcher_beat){.step = 4}, 100);
    assert_int_equal(launcher_stall_behind(&stall), -1);
    launcher_stall_begin(&stall, 5, 1);
    assert_int_equal(launcher_stall_behind(&stall), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_told_is_no_stall),
        cmocka_unit_test(the_first_word_of_a_rank_is_progress),
        cmocka_unit_test(a_given_limit_holds_from_the_first_progress),
        cmocka_unit_test(the_default_is_off_before_the_first_step),
        cmocka_unit_test(the_default_is_ten_times_the_slowest_step_and_300_s_at_least),
        cmocka_unit_test(progress_of_any_rank_puts_it_off),
        cmocka_unit_test(a_new_start_begins_afresh),
        cmocka_unit_test(the_rank_behind_has_the_least_step_then_micro_batch_then_progress),
        cmocka_unit_test(a_rank_that_has_told_nothing_is_behind),
        cmocka_unit_test(of_equal_ranks_none_is_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
