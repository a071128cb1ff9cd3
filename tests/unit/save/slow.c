/* Which rank a save's report names as slow: 3 times the median and half a second, per byte. */
#include "save/history.h"

#include <string.h>

#include "support/core_fixture.h"

#define MIB ((uint64_t)1 << 20)
#define RANKS 1000

/* What ranks did, and what all of them learn. */
typedef struct ranks {
    int size;
    double seconds[RANKS];
    uint64_t bytes[RANKS];
} ranks;

static ranks alike(int size, double seconds, uint64_t bytes) {
    ranks r = {.size = size};
    for (int i = 0; i < size; i++) r.seconds[i] = seconds, r.bytes[i] = bytes;
    return r;
}

static dcp_report learn(const ranks *r) {
    uint64_t most[SAVE_SLOW_WORDS] = {0}, own[SAVE_SLOW_WORDS], total = 0;
    dcp_report report = DCP_REPORT_INIT;
    for (int i = 0; i < r->size; i++) total += r->bytes[i];
    for (int i = 0; i < r->size; i++) {
        dcp_comm *comm = calloc(1, sizeof *comm);
        comm->rank = i, comm->size = r->size;
        comm_vote v = {0};
        save_slow_vote(&v, comm, r->seconds[i], r->bytes[i], total, own);
        for (int w = 0; w < SAVE_SLOW_WORDS; w++)
            if (own[w] > most[w]) most[w] = own[w];
        free(comm);
    }
    save_slow_find(most, &report);
    return report;
}

static void assert_slow(const ranks *r, int rank, double ratio, double slow_s, double median_s) {
    const dcp_report report = learn(r);
    assert_int_equal(report.slow_rank, rank);
    assert_float_equal(report.slow_ratio, ratio, 0.001);
    assert_float_equal(report.slow_s, slow_s, 0.001);
    assert_float_equal(report.median_s, median_s, 0.001);
}

static void assert_none(const ranks *r) { assert_true(learn(r).slow_ratio == 0); }

static void a_slow_rank_is_named(void **state) {
    (void)state;
    for (int size = 2; size <= RANKS; size = size * 3 + 1) {
        ranks r = alike(size, 1, 100 * MIB);
        assert_none(&r);
        r.seconds[size - 1] = 10;
        assert_slow(&r, size - 1, 10, 10, 1);
        r.seconds[0] = 20;
        if (size > 2) assert_slow(&r, 0, 20, 20, 1);
    }
}

static void both_bounds_count(void **state) {
    (void)state;
    ranks r = alike(8, 1, 100 * MIB);
    r.seconds[5] = 2.9;
    assert_none(&r);
    r.seconds[5] = 3.1;
    assert_slow(&r, 5, 3.1, 3.1, 1);
    r = alike(8, 0.04, 100 * MIB);
    r.seconds[5] = 0.5; /* 12 times, but not half a second */
    assert_none(&r);
    r.seconds[5] = 0.6;
    assert_slow(&r, 5, 15, 0.6, 0.04);
}

/* If half of the ranks are slow, none is slow compared with the median. */
static void many_slow_ones_are_not_one(void **state) {
    (void)state;
    ranks r = alike(9, 1, 100 * MIB);
    for (int i = 0; i < 5; i++) r.seconds[i] = 10;
    assert_none(&r);
}

/* Ranks that write more need longer, and those that write nothing do not count. */
static void it_goes_by_the_bytes(void **state) {
    (void)state;
    ranks r = alike(8, 0.001, 0);
    for (int i = 0; i < 2; i++) r.seconds[4 * i] = 8, r.bytes[4 * i] = 800 * MIB;
    assert_none(&r);
    r.seconds[4] = 80;
    assert_slow(&r, 4, 10, 80, 8);
    r = alike(8, 1, 100 * MIB);
    r.seconds[3] = 4, r.bytes[3] = 400 * MIB;
    assert_none(&r);
    r = alike(8, 1, 100 * MIB);
    r.seconds[3] = 4, r.bytes[3] = 1 * MIB; /* little was to be written */
    assert_none(&r);
    r = alike(1, 1, 100 * MIB);
    assert_none(&r);
    r = alike(4, 1, 0);
    assert_none(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slow_rank_is_named),
        cmocka_unit_test(both_bounds_count),
        cmocka_unit_test(many_slow_ones_are_not_one),
        cmocka_unit_test(it_goes_by_the_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
