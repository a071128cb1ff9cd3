/* A run tells of a slow rank once: when it was slow in two saves after each other, and again when
 * saves had been fast for long. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "step/saves.h"

/* A save with that slow rank; -1: with none. */
static int save(step_slow *s, int rank) {
    const dcp_report report = {
        .size = sizeof report, .slow_ratio = rank < 0 ? 0 : 4, .slow_rank = rank < 0 ? 0 : rank};
    return step_slow_note(s, &report);
}

static void it_is_told_once(void **state) {
    (void)state;
    step_slow s = {0};
    assert_int_equal(save(&s, 0), 0);
    assert_int_equal(save(&s, 0), 1);
    for (int i = 0; i < 50; i++) assert_int_equal(save(&s, 0), 0);
}

static void one_slow_save_says_nothing(void **state) {
    (void)state;
    step_slow s = {0};
    for (int i = 0; i < 20; i++) {
        assert_int_equal(save(&s, 3), 0);
        assert_int_equal(save(&s, -1), 0);
    }
    for (int i = 0; i < 20; i++) assert_int_equal(save(&s, i % 2), 0);
}

static void another_rank_is_told_of(void **state) {
    (void)state;
    step_slow s = {0};
    assert_int_equal(save(&s, 2), 0);
    assert_int_equal(save(&s, 2), 1);
    assert_int_equal(save(&s, 5), 0);
    assert_int_equal(save(&s, 5), 1);
}

static void it_is_told_again_after_a_long_rest(void **state) {
    (void)state;
    step_slow s = {0};
    assert_int_equal(save(&s, 1) + save(&s, 1), 1);
    for (int i = 0; i < STEP_SLOW_QUIET - 1; i++) assert_int_equal(save(&s, -1), 0);
    assert_int_equal(save(&s, 1) + save(&s, 1), 0);
    for (int i = 0; i < STEP_SLOW_QUIET; i++) assert_int_equal(save(&s, -1), 0);
    assert_int_equal(save(&s, 1), 0);
    assert_int_equal(save(&s, 1), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_told_once),
        cmocka_unit_test(one_slow_save_says_nothing),
        cmocka_unit_test(another_rank_is_told_of),
        cmocka_unit_test(it_is_told_again_after_a_long_rest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
