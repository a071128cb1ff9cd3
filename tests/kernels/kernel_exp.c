/* The CPU loops' exp stays within 1 unit in the last place of the true value, erf within 2. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "cpu/lanes.h"

static double units_off(float x) {
    double want = exp((double)x), got = (double)lanes_exp(x);
    double unit = ldexp(1.0, ilogb(want) - 23);
    return fabs(got - want) / unit;
}

static void accurate(void **state) {
    (void)state;
    double worst = 0.0;
    for (float x = -87.33f; x <= 88.0f; x += 1.37e-4f) worst = fmax(worst, units_off(x));
    for (float x = 1.0f; x > 1e-30f; x *= 0.97f)
        worst = fmax(worst, fmax(units_off(x), units_off(-x)));
    if (!(worst < 1.0)) fail_msg("off by %.3f units in the last place", worst);
}

static void extremes(void **state) {
    (void)state;
    assert_true(lanes_exp(0.0f) == 1.0f);
    assert_true(lanes_exp(-88.0f) == 0.0f && lanes_exp(-INFINITY) == 0.0f);
    assert_true(lanes_exp(INFINITY) == lanes_exp(88.0f) && isfinite(lanes_exp(88.0f)));
    assert_true(isnan(lanes_exp(NAN)));
}

static double erf_units_off(float x) {
    double want = erf((double)x), got = (double)lanes_erf(x);
    return fabs(got - want) / ldexp(1.0, ilogb(want) - 23);
}

static void erf_is_accurate(void **state) {
    (void)state;
    double worst = 0.0;
    for (float x = -6.0f; x <= 6.0f; x += 1.37e-5f) worst = fmax(worst, erf_units_off(x));
    for (float x = 1.0f; x > 1e-30f; x *= 0.97f)
        worst = fmax(worst, fmax(erf_units_off(x), erf_units_off(-x)));
    if (!(worst < 2.0)) fail_msg("off by %.3f units in the last place", worst);
}

static void erf_extremes(void **state) {
    (void)state;
    assert_true(lanes_erf(0.0f) == 0.0f);
    assert_true(lanes_erf(INFINITY) == 1.0f && lanes_erf(-INFINITY) == -1.0f);
    assert_true(lanes_erf(1e30f) == 1.0f && isnan(lanes_erf(NAN)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accurate),
        cmocka_unit_test(extremes),
        cmocka_unit_test(erf_is_accurate),
        cmocka_unit_test(erf_extremes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
