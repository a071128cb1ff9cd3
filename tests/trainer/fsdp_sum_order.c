/* The order of additions: short rows, few sums at once, errors as small as pairwise summation's;
 * and the schedule, which sends whole parts of it, each once and in order, whatever the ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>

#include "fsdp/sum_order.h"

enum { MOST = 4096, WORLDS = 16 };

static void expect_order(uint64_t n, uint64_t small, uint64_t large) {
    const fsdp_sum_order o = fsdp_sum_order_of(n);
    if (o.small != small || o.large != large)
        fail_msg("%d: %d and %d, not %d and %d", (int)n, (int)o.small, (int)o.large, (int)small,
                 (int)large);
}

/* Checkpoints of a run have the bits of these. */
static void is_fixed(void **state) {
    (void)state;
    expect_order(1, 1, 1);
    expect_order(2, 1, 2);
    expect_order(4, 2, 4);
    expect_order(6, 3, 6);
    expect_order(8, 2, 4);
    expect_order(12, 3, 6);
    expect_order(16, 4, 8);
    expect_order(17, 4, 16); /* as 32 */
    expect_order(24, 3, 12);
    expect_order(32, 4, 16);
    expect_order(64, 4, 16);
    expect_order(256, 8, 64);
    expect_order(4096, 16, 256);
}

static void keeps_three_sums(void **state) {
    (void)state;
    for (uint64_t n = 1; n <= MOST; n++) {
        const fsdp_sum_order o = fsdp_sum_order_of(n);
        assert_true(o.large % o.small == 0);
        for (uint64_t end = 1; end <= n; end++) assert_true(fsdp_sum_order_parts(&o, 0, end) <= 3);
    }
}

/* ---- errors */

static float random_value(uint64_t *seed) { /* even between -1 and 1 */
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(*seed >> 11) * 0x1p-52 - 1);
}

typedef struct partial {
    fsdp_part part;
    float sum;
} partial;

static float in_order(const fsdp_sum_order *o, const float *values, uint64_t n) {
    partial sums[4];
    size_t depth = 0;
    for (uint64_t i = 0; i < n; i++) {
        assert_true(depth < 4);
        sums[depth++] = (partial){{i, 1}, values[i]};
        for (; depth > 1 && fsdp_sum_order_joins(o, sums[depth - 2].part, sums[depth - 1].part);
             depth--) {
            sums[depth - 2].sum += sums[depth - 1].sum;
            sums[depth - 2].part.n += sums[depth - 1].part.n;
        }
    }
    for (; depth > 1; depth--) sums[depth - 2].sum += sums[depth - 1].sum;
    return sums[0].sum;
}

static float pairwise(const float *values, uint64_t n) {
    uint64_t half = 1;
    if (n == 1) return values[0];
    while (2 * half < n) half *= 2;
    return pairwise(values, half) + pairwise(values + half, n - half);
}

/* Mean squares of the errors of many sums; of the values, `offset` is their mean. */
static void measure(uint64_t n, double offset, double *ours, double *theirs, double *running) {
    enum { SUMS = 400 };
    static float values[MOST];
    const fsdp_sum_order o = fsdp_sum_order_of(n), in_a_row = fsdp_sum_order_running();
    uint64_t seed = n;
    *ours = *theirs = *running = 0;
    for (int s = 0; s < SUMS; s++) {
        double exact = 0;
        for (uint64_t i = 0; i < n; i++) {
            values[i] = random_value(&seed) + (float)offset;
            exact += (double)values[i];
        }
        *ours += pow((double)in_order(&o, values, n) - exact, 2);
        *theirs += pow((double)pairwise(values, n) - exact, 2);
        *running += pow((double)in_order(&in_a_row, values, n) - exact, 2);
    }
}

static void errors_are_pairwise_ones(void **state) {
    (void)state;
    for (int like = 0; like < 2; like++) /* noise alone, as of gradients near a minimum; or not */
        for (uint64_t n = 16; n <= MOST; n *= 4) {
            double ours, theirs, running;
            measure(n, like, &ours, &theirs, &running);
            print_message(
                "%4d values around %d: %.2f of pairwise summation's error; in a row %.2f\n", (int)n,
                like, sqrt(ours / theirs), sqrt(running / theirs));
            assert_true(ours <= theirs * 1.5 * 1.5);
        }
}

/* ---- the schedule */

static void check_schedule(const fsdp_micro_batches *l) {
    static int computed[MOST];
    const uint64_t steps = fsdp_micro_batches_steps(l);
    uint64_t next = 0; /* where ranks are one group: all before it were sent */
    for (uint64_t i = 0; i < l->n; i++) computed[i] = 0;
    for (uint64_t micro = 0; micro < steps; micro++)
        for (int r = 0; r < l->world; r++) {
            const uint64_t batch = fsdp_micro_batch_of(l, r, micro);
            const fsdp_part part = fsdp_micro_batches_part(l, r, micro);
            if (batch < l->n) computed[batch]++;
            assert_true(batch == l->n || l->world == 1 ||
                        batch / l->block * l->block + l->block <= l->n);
            if (part.n == 0) continue;
            assert_int_equal(fsdp_sum_order_parts(&l->order, part.first, part.first + part.n), 1);
            assert_true(batch == part.first + part.n - 1);
            if (l->group == l->world) assert_int_equal(part.first, next);
            next = part.first + part.n;
        }
    for (uint64_t i = 0; i < l->n; i++) assert_int_equal(computed[i], 1);
    for (int r = 0; r < l->world; r++) assert_int_equal(fsdp_micro_batch_of(l, r, steps), l->n);
}

/* Groups' runs: whole and few sums, and those of all groups follow each other. */
static void check_runs(const fsdp_micro_batches *l) {
    uint64_t next = 0;
    for (uint64_t micro = 0; micro < fsdp_micro_batches_steps(l); micro++)
        for (int r = 0; r < l->world && fsdp_micro_batches_end_run(l, micro); r += l->group) {
            const fsdp_part run = fsdp_micro_batches_run(l, r, micro);
            assert_int_equal(run.first, next);
            next += run.n;
            assert_true(fsdp_sum_order_parts(&l->order, run.first, next) <= FSDP_MAX_PARTS);
        }
    assert_int_equal(next, l->n);
}

static void sends_whole_parts(void **state) {
    (void)state;
    for (uint64_t n = 1; n <= 300; n += 1 + n / 40)
        for (int world = 1; world <= WORLDS; world++)
            for (int group = 1; group <= world; group++)
                for (int local = 0; local < 2; local++) {
                    const fsdp_sum_strategy s = {.group = group, .local = local};
                    if (world % group != 0) continue;
                    const fsdp_micro_batches l = fsdp_micro_batches_of(n, world, s);
                    assert_true(l.group == group || l.group == world);
                    check_schedule(&l);
                    if (l.group < world) check_runs(&l);
                }
}

static uint64_t sends(uint64_t n, int world, fsdp_sum_strategy s) {
    const fsdp_micro_batches l = fsdp_micro_batches_of(n, world, s);
    return fsdp_micro_batches_steps(&l) / l.block;
}

/* With powers of two a rank that adds its own micro-batches up sends them a few times. */
static void sends_few_sums(void **state) {
    (void)state;
    const fsdp_sum_strategy two = {.group = 2, .local = 1}, eight = {.group = 8, .local = 1};
    assert_int_equal(sends(16, 2, two), 1);
    assert_int_equal(sends(64, 2, two), 2);
    assert_int_equal(sends(256, 2, two), 2);
    assert_int_equal(sends(64, 8, eight), 2);
    assert_int_equal(sends(256, 8, eight), 4);
    assert_int_equal(sends(24, 8, eight), 1);
    for (uint64_t n = 2; n <= MOST; n *= 2)
        for (int world = 1; world <= WORLDS && (uint64_t)world <= n; world *= 2)
            assert_true(sends(n, world, (fsdp_sum_strategy){.group = world, .local = world > 1}) <=
                        (world == 1 ? n : 8));
}

/* Groups of several ranks reduce among themselves, also where a rank has an odd number. */
static void groups_add_up_first(void **state) {
    (void)state;
    static const int cases[][3] = {{16, 4, 2}, {16, 8, 4}, {16, 8, 2}, {8, 8, 4},   {24, 8, 4},
                                   {40, 8, 4}, {12, 6, 3}, {6, 6, 3},  {64, 16, 8}, {256, 16, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const fsdp_micro_batches l = fsdp_micro_batches_of(
            (uint64_t)cases[i][0], cases[i][1], (fsdp_sum_strategy){.group = cases[i][2]});
        assert_int_equal(l.group, cases[i][2]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_fixed),
        cmocka_unit_test(keeps_three_sums),
        cmocka_unit_test(errors_are_pairwise_ones),
        cmocka_unit_test(sends_whole_parts),
        cmocka_unit_test(sends_few_sums),
        cmocka_unit_test(groups_add_up_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
