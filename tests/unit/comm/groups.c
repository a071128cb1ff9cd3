/* Ranks in groups by their keys: numbers, members and order. */
#include "comm/process.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static void check_groups(const comm_groups *g, int rank, int size, const uint64_t *keys) {
    int seen = 0, most = 0;
    for (int group = 0, lowest = -1; group < g->n; group++) {
        const int n = comm_groups_size(g, group);
        assert_true(n > 0 && comm_groups_rank(g, group, 0) > lowest);
        most = n > most ? n : most;
        lowest = comm_groups_rank(g, group, 0);
        for (int i = 0; i < n; i++, seen++) {
            const int r = comm_groups_rank(g, group, i);
            assert_int_equal(g->of[r], group);
            assert_true(i == 0 || r > comm_groups_rank(g, group, i - 1));
            assert_true(keys[r] == keys[lowest]);
        }
        for (int other = 0; other < group; other++)
            assert_true(keys[comm_groups_rank(g, other, 0)] != keys[lowest]);
    }
    assert_int_equal(comm_groups_largest(g), most);
    assert_int_equal(seen, size);
    assert_int_equal(g->first[g->n], size);
    assert_int_equal(g->own, g->of[rank]);
}

static void by_keys(void **state) {
    uint64_t keys[100];
    (void)state;
    for (int seed = 0; seed < 50; seed++) {
        const int size = 1 + seed * 2, rank = (seed * 7) % size;
        for (int r = 0; r < size; r++)
            keys[r] = ((uint64_t)(r * 7919 + seed) * 2654435761u) % (unsigned)(1 + seed % 9);
        comm_groups *g = comm_groups_make(rank, size, keys);
        assert_non_null(g);
        check_groups(g, rank, size, keys);
        comm_groups_release(comm_groups_share(g));
        check_groups(g, rank, size, keys);
        comm_groups_release(g);
    }
}

static void each_alone(void **state) {
    uint64_t keys[5] = {0, 1, 2, 3, 4};
    (void)state;
    comm_groups *g = comm_groups_make_single(3, 5);
    assert_non_null(g);
    assert_int_equal(g->n, 5);
    check_groups(g, 3, 5, keys);
    comm_groups_release(g);
    comm_groups_release(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(by_keys), cmocka_unit_test(each_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
