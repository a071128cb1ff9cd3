/* Which ranks are told of as slow or large, and that noise is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "report/report.h"

enum { WORLD = 4, MIB = 1 << 20 };

static char told[256];

static void tell(void *ctx, int rank, report_balance_kind kind, int is, double ratio) {
    (void)ctx;
    const size_t used = strlen(told);
    snprintf(told + used, sizeof told - used, "%d%s%s %.2f;", rank, is ? " " : " not ",
             kind == REPORT_BALANCE_SLOW ? "slow" : "large", ratio);
}

/* A window of steps in which the ranks take so long and are so large. */
static void window(report_balance *b, const double *times, const double *bytes, const char *want) {
    told[0] = '\0';
    for (int i = 0; i < REPORT_BALANCE_STEPS; i++) report_balance_step(b, times, bytes);
    assert_string_equal(told, want);
}

static const double same[WORLD] = {1, 1, 1, 1};
static report_balance *balance_of(uint64_t n, int world) {
    const fsdp_sum_strategy all = {.group = world};
    const fsdp_micro_batches micro_batches = fsdp_micro_batches_of(n, world, all);
    return report_balance_create(&micro_batches, tell, NULL);
}

static const double small[WORLD] = {100. * MIB, 100. * MIB, 100. * MIB, 100. * MIB};

static void tells_once_until_it_changes(void **state) {
    (void)state;
    report_balance *b = balance_of(WORLD, WORLD);
    const double slow[WORLD] = {1, 1, 1.5, 1}, nearly[WORLD] = {1, 1, 1.15, 1};
    window(b, same, small, "");
    window(b, slow, small, "2 slow 1.50;");
    window(b, slow, small, "");
    window(b, nearly, small, "");
    window(b, same, small, "2 not slow 1.00;");
    window(b, nearly, small, "");
    window(b, slow, small, "2 slow 1.50;");
    report_balance_destroy(b);
}

static void noise_is_not_told_of(void **state) {
    (void)state;
    report_balance *b = balance_of(WORLD, WORLD);
    told[0] = '\0';
    for (int i = 0; i < 4 * REPORT_BALANCE_STEPS; i++) { /* another rank is slow at each step */
        double times[WORLD] = {1, 1, 1, 1};
        times[i % WORLD] = 2;
        report_balance_step(b, times, small);
    }
    const double once[WORLD] = {20, 1, 1, 1}; /* one step alone */
    report_balance_step(b, once, small);
    for (int i = 1; i < REPORT_BALANCE_STEPS; i++) report_balance_step(b, same, small);
    const double hardly[WORLD] = {0.001, 0.003, 0.001, 0.001}; /* nobody waits long for it */
    for (int i = 0; i < REPORT_BALANCE_STEPS; i++) report_balance_step(b, hardly, small);
    assert_string_equal(told, "");
    report_balance_destroy(b);
}

static void times_are_judged_a_leaf(void **state) {
    (void)state;
    report_balance *b = balance_of(5, WORLD);
    const double twice[WORLD] = {2, 1, 1, 1};
    window(b, twice, small, "");
    const double faster[WORLD] = {1.5, 1, 1, 1}; /* the others are not slow for that */
    window(b, faster, small, "");
    report_balance_destroy(b);
    b = balance_of(2, WORLD);
    const double idle[WORLD] = {1, 1, 0, 0};
    window(b, idle, small, "");
    report_balance_destroy(b);
    b = balance_of(2, 1);
    window(b, same, small, "");
    report_balance_destroy(b);
}

static void large_ranks(void **state) {
    (void)state;
    report_balance *b = balance_of(WORLD, WORLD);
    const double tiny[WORLD] = {50. * MIB, 30. * MIB, 30. * MIB, 30. * MIB};
    const double large[WORLD] = {100. * MIB, 100. * MIB, 100. * MIB, 200. * MIB};
    const double grown[WORLD] = {200. * MIB, 200. * MIB, 200. * MIB, 200. * MIB};
    window(b, same, tiny, "");
    window(b, same, large, "3 large 2.00;");
    window(b, same, large, "");
    window(b, same, grown, "3 not large 1.00;");
    report_balance_destroy(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tells_once_until_it_changes),
        cmocka_unit_test(noise_is_not_told_of),
        cmocka_unit_test(times_are_judged_a_leaf),
        cmocka_unit_test(large_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
