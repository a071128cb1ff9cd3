/* The choice of a token: the likeliest, the first of equal ones; or by chance, as often as the
 * softmax says, by numbers that depend on seed and place alone. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "sample/tokens.h"

static int32_t choose(const float *logits, size_t n, double temperature, uint64_t seed,
                      uint64_t at) {
    int32_t id = -1;
    assert_true(sample_choose(logits, n, temperature, seed, at, &id));
    return id;
}

static void likeliest(void **state) {
    (void)state;
    for (uint64_t at = 0; at < 5; at++) {
        assert_int_equal(choose((float[]){1, 5, 5, 2}, 4, 0.0, 3, at), 1);
        assert_int_equal(choose((float[]){-INFINITY, -3, -2}, 3, 0.0, 3, at), 2);
        assert_int_equal(choose((float[]){7}, 1, 0.9, 3, at), 0);
        assert_int_equal(choose((float[]){1, 900, 2}, 3, 1.0, 3, at), 1);
        assert_int_equal(choose((float[]){0, 1, 0}, 3, 1e-300, 3, at), 1);
    }
}

/* 100,000 draws are off by less than five deviations. */
static void by_chance(void **state) {
    (void)state;
    enum { DRAWS = 100000, CLASSES = 4 };
    const float logits[CLASSES] = {0.5f, -1.0f, -INFINITY, 2.0f};
    const double temperatures[] = {0.5, 1.0, 3.0};
    for (size_t i = 0; i < 3; i++) {
        size_t seen[CLASSES] = {0};
        double sum = 0.0;
        for (size_t c = 0; c < CLASSES; c++) sum += exp((double)logits[c] / temperatures[i]);
        for (uint64_t at = 0; at < DRAWS; at++)
            seen[choose(logits, CLASSES, temperatures[i], 9, at)]++;
        for (size_t c = 0; c < CLASSES; c++) {
            const double p = exp((double)logits[c] / temperatures[i]) / sum;
            assert_true(fabs((double)seen[c] - DRAWS * p) <= 5.0 * sqrt(DRAWS * p * (1.0 - p)));
        }
    }
}

/* Written down: another machine's choices have to be these, too. */
static void seeds(void **state) {
    (void)state;
    const float logits[8] = {0};
    int32_t first[12], second[12], high[12];
    for (uint64_t at = 0; at < 12; at++) {
        first[at] = choose(logits, 8, 1.0, 1, at);
        second[at] = choose(logits, 8, 1.0, 2, at);
        high[at] = choose(logits, 8, 1.0, 1 + ((uint64_t)1 << 32), at);
    }
    const int32_t expected[12] = {0, 5, 7, 5, 2, 3, 7, 0, 0, 1, 3, 2};
    assert_memory_equal(first, expected, sizeof first);
    assert_memory_not_equal(first, second, sizeof first);
    assert_memory_not_equal(first, high, sizeof first);
}

static void no_numbers(void **state) {
    (void)state;
    int32_t id;
    assert_false(sample_choose((float[]){1, NAN, 2}, 3, 0.0, 0, 0, &id));
    assert_false(sample_choose((float[]){1, NAN, 2}, 3, 1.0, 0, 0, &id));
    assert_false(sample_choose((float[]){-INFINITY, -INFINITY}, 2, 1.0, 0, 0, &id));
    assert_false(sample_choose((float[]){1, INFINITY}, 2, 1.0, 0, 0, &id));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(likeliest), cmocka_unit_test(by_chance),
                                       cmocka_unit_test(seeds), cmocka_unit_test(no_numbers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
