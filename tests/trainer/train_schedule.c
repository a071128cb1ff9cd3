/* Learning rates at the steps that matter. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "optim/optim.h"

static config base(config_schedule schedule) {
    return (config){.schedule = schedule,
                    .lr = 2,
                    .max_steps = 100,
                    .warmup_steps = 10,
                    .min_lr_ratio = 0.1,
                    .decay_ratio = 0.2};
}

static void has_rate(config_schedule schedule, uint64_t step, double want) {
    const config c = base(schedule);
    if (fabs(optim_schedule_lr(&c, step) - want) > 1e-12) /* some roundings of fp64 */
        fail_msg("schedule %d, step %d: %g", schedule, (int)step, optim_schedule_lr(&c, step));
}

static void warms_up(void **state) {
    (void)state;
    for (config_schedule s = SCHEDULE_CONSTANT; s <= SCHEDULE_WSD; s++) {
        has_rate(s, 1, 0.2);
        has_rate(s, 5, 1);
        has_rate(s, 10, 2);
    }
    config c = base(SCHEDULE_COSINE);
    c.warmup_steps = 0;
    assert_true(optim_schedule_lr(&c, 1) < 2 && optim_schedule_lr(&c, 1) > 1.99);
}

static void warms_up_by_logarithm(void **state) {
    (void)state;
    config c = base(SCHEDULE_LINEAR);
    c.warmup_is_log = 1;
    for (uint64_t step = 1; step <= 10; step++) /* DeepSpeed's first update is its iteration 0 */
        assert_true(fabs(optim_schedule_lr(&c, step) - 2 * log((double)step) / log(10)) < 1e-12);
    assert_true(fabs(optim_schedule_lr(&c, 55) - 1.1) < 1e-12);
    c.warmup_steps = 1;
    assert_true(optim_schedule_lr(&c, 1) == 2);
}

static void decays(void **state) {
    (void)state;
    has_rate(SCHEDULE_CONSTANT, 100, 2);
    has_rate(SCHEDULE_LINEAR, 55, 1.1);
    has_rate(SCHEDULE_LINEAR, 100, 0.2);
    has_rate(SCHEDULE_COSINE, 55, 1.1);
    has_rate(SCHEDULE_COSINE, 100, 0.2);
    has_rate(SCHEDULE_COSINE, 200, 0.2);
    has_rate(SCHEDULE_WSD, 80, 2);
    has_rate(SCHEDULE_WSD, 90, 1.1);
    has_rate(SCHEDULE_WSD, 100, 0.2);
}

static void survives_a_warm_up_longer_than_the_run(void **state) {
    (void)state;
    config c = base(SCHEDULE_COSINE);
    c.warmup_steps = 1000;
    assert_true(optim_schedule_lr(&c, 100) == 0.2);
    assert_true(optim_schedule_lr(&c, 1000) == 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(warms_up),
        cmocka_unit_test(warms_up_by_logarithm),
        cmocka_unit_test(decays),
        cmocka_unit_test(survives_a_warm_up_longer_than_the_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
