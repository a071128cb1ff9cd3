/* The exact sum: correctly rounded, whatever the order and however it is cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "optim/grad_norm.h"

static uint64_t next(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 11;
}

static int same(double a, double b) { return memcmp(&a, &b, sizeof a) == 0; }

static double sum_of(const double *x, size_t n) {
    exact_sum sum = {0};
    for (size_t i = 0; i < n; i++) optim_exact_add(&sum, x[i]);
    return optim_exact_value(&sum);
}

/* Against 128-bit integers, whose conversion to double rounds to nearest even. */
static void rounds_like_integers(void **state) {
    (void)state;
    uint64_t seed = 1;
    for (int round = 0; round < 20000; round++) {
        unsigned __int128 want = 0;
        exact_sum sum = {0};
        for (uint64_t i = 0, n = 1 + next(&seed) % 5; i < n; i++) {
            const uint64_t digits = next(&seed) >> next(&seed) % 53, places = next(&seed) % 70;
            want += (unsigned __int128)digits << places;
            optim_exact_add(&sum, ldexp((double)digits, (int)places - 35));
        }
        assert_true(same(optim_exact_value(&sum), ldexp((double)want, -35)));
    }
}

static void has_no_order(void **state) {
    (void)state;
    enum { N = 1000 };
    double x[N];
    uint64_t seed = 2;
    for (int i = 0; i < N; i++) x[i] = ldexp((double)next(&seed), (int)(next(&seed) % 2000) - 1074);
    const double want = sum_of(x, N);
    for (int round = 0; round < 20; round++) {
        exact_sum parts[7] = {0}, all = {0};
        for (int i = 0; i < N; i++) optim_exact_add(&parts[next(&seed) % 7], x[i]);
        for (int p = 0; p < 7; p++) {
            optim_exact_carry(&parts[p]);
            for (size_t l = 0; l < EXACT_LIMBS; l++) all.limbs[l] += parts[p].limbs[l];
        }
        assert_true(same(optim_exact_value(&all), want));
    }
}

static void reaches_both_ends(void **state) {
    (void)state;
    const double tiny[] = {0x1p-1074, 0x1p-1074, 0x1p-1073}, ones[] = {1, 0x1p-1074};
    const double tie[] = {1, 0x1p-53}, over[] = {1, 0x1p-53, 0x1p-1074},
                 odd[] = {1, 0x1p-52, 0x1p-53};
    const double big[] = {DBL_MAX, 1}, huge[] = {DBL_MAX, DBL_MAX};
    assert_true(same(sum_of(NULL, 0), 0));
    assert_true(same(sum_of(tiny, 3), 0x1p-1072));
    assert_true(same(sum_of(ones, 2), 1));
    assert_true(same(sum_of(tie, 2), 1));
    assert_true(same(sum_of(over, 3), 1 + 0x1p-52));
    assert_true(same(sum_of(odd, 3), 1 + 0x1p-51));
    assert_true(same(sum_of(big, 2), DBL_MAX));
    assert_true(isinf(sum_of(huge, 2)));
    const double bad[] = {1, INFINITY}, worse[] = {NAN};
    assert_true(isnan(sum_of(bad, 2)) && isnan(sum_of(worse, 1)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounds_like_integers),
        cmocka_unit_test(has_no_order),
        cmocka_unit_test(reaches_both_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
