/* Groups: every rank is in one, no failure domain has two members of one, their sizes are nearly
 * equal, the same ranks give the same groups; and if there can be none, the message says why. */
#include "redundancy/groups.h"
#include "support/core_fixture.h"

static redundancy_groups *make(redundancy_spec spec, const uint64_t *domains, int world, int size) {
    redundancy_groups *groups = NULL;
    dcp_error err = {0};
    int status = redundancy_groups_make(&spec, domains, world, size, &groups, &err);
    if (status) fail_msg("%s", err.message);
    return groups;
}

static void refuse(redundancy_spec spec, const uint64_t *domains, int world, const char *text) {
    redundancy_groups *groups = NULL;
    dcp_error err = {0};
    assert_int_equal(redundancy_groups_make(&spec, domains, world, 0, &groups, &err), DCP_ERR_ARG);
    assert_null(groups);
    if (!strstr(err.message, text)) fail_msg("no \"%s\" in: %s", text, err.message);
}

static void check_groups(const redundancy_groups *groups, const uint64_t *domains) {
    int least = groups->world, most = 0, ranks = 0;
    for (int g = 0; g < groups->n; g++) {
        int members = redundancy_group_members(groups, g), number;
        if (members < least) least = members;
        if (members > most) most = members;
        ranks += members;
        for (int m = 0; m < members; m++) {
            int rank = groups->order[m * groups->n + g];
            assert_int_equal(redundancy_group_of(groups, rank, &number), g);
            assert_int_equal(number, m);
            for (int other = 0; other < m; other++)
                assert_true(domains[groups->order[other * groups->n + g]] != domains[rank]);
        }
    }
    assert_int_equal(ranks, groups->world);
    assert_true(most - least <= 1 && least > groups->spec.lost);
    assert_true(most <= REDUNDANCY_MAX_MEMBERS);
}

/* Puts `world` ranks on `n` domains, in any order. */
static void any_domains(uint64_t *domains, int world, int n, int each) {
    for (int r = 0; r < world; r++) domains[r] = 1000 * (uint64_t)(r / each % n);
    for (int r = world - 1; r > 0; r--) {
        int other = (int)between(0, (uint64_t)r);
        uint64_t swapped = domains[r];
        domains[r] = domains[other];
        domains[other] = swapped;
    }
}

static void members_are_in_different_domains(void **state) {
    (void)state;
    uint64_t domains[512];
    for (int i = 0; i < 2000; i++) {
        int n = (int)between(2, 40), each = (int)between(1, 8), lost = (int)between(1, 5);
        redundancy_spec spec = {REDUNDANCY_RS, lost < n ? lost : n - 1};
        any_domains(domains, n * each, n, each);
        redundancy_groups *groups = make(spec, domains, n * each, 0);
        check_groups(groups, domains);
        int largest = 2 * spec.lost > 8 ? 2 * spec.lost : 8;
        if (n >= largest) assert_true(redundancy_group_members(groups, 0) <= largest);
        if (n <= largest) assert_int_equal(redundancy_group_members(groups, 0), n);
        redundancy_groups *again = make(spec, domains, n * each, 0);
        assert_memory_equal(groups->order, again->order, (size_t)(n * each) * sizeof(int));
        redundancy_groups_free(again);
        redundancy_groups_free(groups);
    }
}

static void domains_may_have_unequal_numbers_of_ranks(void **state) {
    (void)state;
    const uint64_t domains[] = {5, 5, 5, 5, 7, 7, 7, 7, 9}, last_half[] = {1, 1, 1, 2, 2, 3};
    redundancy_groups *groups = make((redundancy_spec){REDUNDANCY_RS, 1}, domains, 9, 0);
    check_groups(groups, domains);
    assert_int_equal(groups->n, 4);
    redundancy_groups_free(groups);
    groups = make((redundancy_spec){REDUNDANCY_PARTNER, 1}, last_half, 6, 0);
    check_groups(groups, last_half);
    redundancy_groups_free(groups);
}

static void a_group_grows_where_another_were_too_small(void **state) {
    (void)state;
    uint64_t domains[9];
    for (int r = 0; r < 9; r++) domains[r] = (uint64_t)r;
    redundancy_groups *groups = make((redundancy_spec){REDUNDANCY_RS, 4}, domains, 9, 5);
    assert_int_equal(groups->n, 1);
    check_groups(groups, domains);
    redundancy_groups_free(groups);
}

static void what_is_missing_is_said(void **state) {
    (void)state;
    const uint64_t one[] = {3, 3, 3, 3}, two[] = {1, 1, 2, 2}, uneven[] = {1, 1, 1, 2, 3, 4};
    refuse((redundancy_spec){REDUNDANCY_RS, 1}, one, 4,
           "rs(1) needs ranks in at least 2 failure domains, but they are in 1");
    refuse((redundancy_spec){REDUNDANCY_PARTNER, 1}, one, 4,
           "partner needs ranks in at least 2 failure domains");
    refuse((redundancy_spec){REDUNDANCY_RS, 2}, two, 4, "they are in 2");
    refuse((redundancy_spec){REDUNDANCY_RS, 2}, uneven, 6, "one domain has 3 of the 6 ranks");
}

static void none_needs_nothing(void **state) {
    (void)state;
    const uint64_t one[] = {3, 3};
    redundancy_groups *groups = make((redundancy_spec){REDUNDANCY_NONE, 0}, one, 2, 0);
    assert_int_equal(groups->n, 0);
    redundancy_groups_free(groups);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_are_in_different_domains),
        cmocka_unit_test(domains_may_have_unequal_numbers_of_ranks),
        cmocka_unit_test(a_group_grows_where_another_were_too_small),
        cmocka_unit_test(what_is_missing_is_said),
        cmocka_unit_test(none_needs_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
