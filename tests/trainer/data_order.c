/* Random numbers are functions of counters, and an epoch's order is a permutation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "random/random.h"

/* The known answers that Random123 comes with. */
static void philox_gives_the_known_answers(void **state) {
    (void)state;
    static const uint32_t known[3][10] = {
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {~0u, ~0u, ~0u, ~0u, ~0u, ~0u, 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09,
         0x94fdcceb, 0x5001e420, 0x24126ea1},
    };
    for (int i = 0; i < 3; i++) {
        uint32_t out[4];
        random_philox(known[i], known[i] + 4, out);
        assert_memory_equal(out, known[i] + 6, sizeof out);
    }
}

static void normal_numbers_do_not_depend_on_the_cut(void **state) {
    (void)state;
    enum { N = 40000 };
    float *whole = malloc(N * sizeof *whole), *part = malloc(N * sizeof *part);
    const uint64_t stream = random_stream("model.norm.weight");
    random_normal(whole, 7, stream, 0, N, 0.02);
    for (uint64_t at = 0, n = 1; at < N; at += n, n = n % 13 + 1)
        random_normal(part + at, 7, stream, at, at + n > N ? N - at : n, 0.02);
    assert_memory_equal(whole, part, N * sizeof *whole);
    double sum = 0, squares = 0;
    for (int i = 0; i < N; i++) {
        sum += whole[i];
        squares += (double)whole[i] * whole[i];
    }
    /* five and four standard errors, 0.02 / sqrt(N) and 0.02 / sqrt(2 N) */
    assert_true(fabs(sum / N) < 5e-4 && fabs(sqrt(squares / N) - 0.02) < 3e-4);
    random_normal(part, 8, stream, 0, N, 0.02);
    assert_memory_not_equal(whole, part, N * sizeof *whole);
    free(whole);
    free(part);
}

static void an_epochs_order_is_a_permutation(void **state) {
    (void)state;
    static const uint64_t sizes[] = {1, 2, 3, 4, 5, 7, 16, 17, 63, 64, 65, 1000, 4099};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            const uint64_t n = sizes[s];
            char *seen = calloc(n, 1);
            for (uint64_t i = 0; i < n; i++) {
                const uint64_t to = random_permute(i, n, 11, epoch);
                assert_true(to < n);
                assert_int_equal(seen[to], 0);
                seen[to] = 1;
            }
            free(seen);
        }
}

static void orders_differ(void **state) {
    (void)state;
    const uint64_t n = 1000;
    int same_epoch = 0, same_seed = 0, fixed = 0;
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t to = random_permute(i, n, 11, 0);
        same_epoch += to == random_permute(i, n, 11, 1);
        same_seed += to == random_permute(i, n, 12, 0);
        fixed += to == i;
    }
    assert_true(same_epoch < 10 && same_seed < 10 && fixed < 10);
    assert_true(random_permute(5, (uint64_t)1 << 40, 1, 0) < (uint64_t)1 << 40);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_known_answers),
        cmocka_unit_test(normal_numbers_do_not_depend_on_the_cut),
        cmocka_unit_test(an_epochs_order_is_a_permutation),
        cmocka_unit_test(orders_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
