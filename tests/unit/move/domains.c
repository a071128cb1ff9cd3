/* Which rank aggregates which domain: no rank has two in a window, all have equally many except for
 * one, and the first aggregator has the first and the last domain. */
#include "move/domain.h"
#include "support/core_fixture.h"

enum { MOST = 12, DOMAINS = 40 };

static void check_window(const move_windows *w, uint64_t window) {
    int seen[MOST] = {0};
    for (int i = 0; i < w->width; i++) {
        const move_domain d = move_windows_domain(w, window, i);
        assert_int_equal(d.start, (window * (uint64_t)w->width + (uint64_t)i) * w->domain_bytes);
        assert_int_equal(d.end, d.start + w->domain_bytes);
        assert_int_equal(seen[d.aggregator->rank]++, 0);
    }
}

static void check_all(const move_windows *w, uint64_t domains) {
    uint64_t of[MOST] = {0};
    for (uint64_t window = 0; window < w->count; window++) check_window(w, window);
    for (uint64_t d = 0; d < domains; d++) of[move_windows_aggregator(w, d)->rank]++;
    for (int i = 0; i < w->n_aggregators; i++) {
        assert_true(of[i] >= domains / (uint64_t)w->n_aggregators);
        assert_true(of[i] <= domains / (uint64_t)w->n_aggregators + 1);
    }
    assert_int_equal(move_windows_aggregator(w, 0)->rank, 0);
    if (domains > (uint64_t)w->n_aggregators)
        assert_int_equal(move_windows_aggregator(w, domains - 1)->rank, 0);
}

/* Files that end with a domain, and within one. */
static void turns_are_even(void **state) {
    (void)state;
    move_aggregator aggregators[MOST];
    for (int i = 0; i < MOST; i++) aggregators[i] = (move_aggregator){.rank = i};
    for (int n = 1; n <= MOST; n++)
        for (int width = 1; width <= n; width++)
            for (uint64_t domains = 1; domains <= DOMAINS; domains++)
                for (uint64_t rest = 0; rest < 2; rest++) {
                    move_windows w = {
                        .domain_bytes = 4096, .aggregators = aggregators, .n_aggregators = n};
                    move_windows_set_width(&w, width, domains * w.domain_bytes - rest);
                    check_all(&w, domains);
                }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(turns_are_even)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
