/* The erasure code alone: whatever members of a group are lost, the rest of each stripe gives their
 * strips back; and every member holds its data once, in order, and as much redundancy as the
 * others. */
#include "redundancy/groups.h"
#include "support/core_fixture.h"

#define STRIP 96

/* Strips [stripe][row] of a whole group. */
typedef struct encoded {
    code_group group;
    unsigned char strips[REDUNDANCY_MAX_MEMBERS][REDUNDANCY_MAX_MEMBERS][STRIP];
} encoded;

/* Computes row `wanted` of a stripe from the rows `present`. */
static void solve(encoded *e, int number, const int *present, int wanted, unsigned char *out) {
    unsigned char coeffs[REDUNDANCY_MAX_MEMBERS], *in[REDUNDANCY_MAX_MEMBERS];
    int n = redundancy_code_data_strips(&e->group);
    assert_int_equal(redundancy_code_solve(&e->group, present, wanted, coeffs), 0);
    for (int i = 0; i < n; i++) in[i] = e->strips[number][present[i]];
    redundancy_code_combine(STRIP, n, 1, coeffs, in, &out);
}

static void encode(encoded *e, code_group group) {
    int data[REDUNDANCY_MAX_MEMBERS], n = redundancy_code_data_strips(&group);
    e->group = group;
    for (int number = 0; number < group.members; number++) {
        for (int row = 0; row < n; row++) {
            data[row] = row;
            for (int i = 0; i < STRIP; i++) e->strips[number][row][i] = (unsigned char)any();
        }
        for (int row = n; row < redundancy_code_strips(&group); row++)
            solve(e, number, data, row, e->strips[number][row]);
    }
}

/* Members whose bit is set are lost. */
static void check_loss(encoded *e, unsigned members_lost) {
    code_strip rows[REDUNDANCY_MAX_MEMBERS];
    unsigned char out[STRIP];
    int n = redundancy_code_data_strips(&e->group);
    for (int number = 0; number < e->group.members; number++) {
        int present[REDUNDANCY_MAX_MEMBERS], left = 0;
        redundancy_code_stripe(&e->group, number, rows);
        for (int row = 0; row < redundancy_code_strips(&e->group) && left < n; row++)
            if (!(members_lost >> rows[row].member & 1)) present[left++] = row;
        assert_int_equal(left, n);
        for (int row = 0; row < redundancy_code_strips(&e->group); row++) {
            if (!(members_lost >> rows[row].member & 1)) continue;
            solve(e, number, present, row, out);
            assert_memory_equal(out, e->strips[number][row], STRIP);
        }
    }
}

static void any_members_up_to_k_may_be_lost(void **state) {
    (void)state;
    static encoded e;
    for (int members = 2; members <= 9; members++)
        for (int lost = 1; lost <= 3 && lost < members; lost++) {
            encode(&e, (code_group){REDUNDANCY_RS, members, lost});
            for (unsigned set = 0; set < 1u << members; set++)
                if (__builtin_popcount(set) <= lost) check_loss(&e, set);
        }
}

static void the_largest_group_may_lose_its_most(void **state) {
    (void)state;
    static encoded e;
    encode(&e, (code_group){REDUNDANCY_RS, 32, REDUNDANCY_MAX_LOST});
    for (int i = 0; i < 20; i++) {
        unsigned set = 0;
        while (__builtin_popcount(set) < REDUNDANCY_MAX_LOST) set |= 1u << between(0, 31);
        check_loss(&e, set);
    }
}

/* Modulo x^8 + x^4 + x^3 + x^2 + 1. */
static unsigned char multiply(unsigned a, unsigned b) {
    unsigned product = 0;
    for (; b; b >>= 1, a = a << 1 ^ (a & 0x80 ? 0x11d : 0))
        if (b & 1) product ^= a;
    return (unsigned char)product;
}

static unsigned char invert(unsigned a) {
    for (unsigned b = 1; b < 256; b++)
        if (multiply(a, b) == 1) return (unsigned char)b;
    fail();
    return 0;
}

/* Computes docs/format.md's sum by independent arithmetic. */
static void it_is_the_documented_code(void **state) {
    (void)state;
    static encoded e;
    const int members = 7, lost = 3, data = members - lost;
    encode(&e, (code_group){REDUNDANCY_RS, members, lost});
    for (int number = 0; number < members; number++) {
        code_strip rows[REDUNDANCY_MAX_MEMBERS];
        redundancy_code_stripe(&e.group, number, rows);
        for (int row = 0; row < members; row++) {
            int d = (rows[row].member - number + members) % members;
            assert_int_equal(row, d < lost ? data + d : d - lost);
        }
        for (int d = 0; d < lost; d++)
            for (int i = 0; i < STRIP; i++) {
                unsigned char sum = 0;
                for (int c = 0; c < data; c++)
                    sum ^= multiply(invert((unsigned)((data + d) ^ c)), e.strips[number][c][i]);
                assert_int_equal(e.strips[number][data + d][i], sum);
            }
    }
}

static void a_partner_has_a_copy(void **state) {
    (void)state;
    static encoded e;
    for (int members = 2; members <= 9; members++) {
        encode(&e, (code_group){REDUNDANCY_PARTNER, members, 1});
        for (int number = 0; number < members; number++)
            assert_memory_equal(e.strips[number][0], e.strips[number][1], STRIP);
        for (int m = 0; m < members; m++) check_loss(&e, 1u << m);
        if (members > 3) check_loss(&e, 1u << 0 | 1u << 2);
    }
}

/* Each strip of a member's files is in exactly one stripe, in the order of its index. */
static void check_strips(const code_group *g) {
    int next[2][REDUNDANCY_MAX_MEMBERS] = {{0}};
    code_strip rows[REDUNDANCY_MAX_MEMBERS];
    for (int number = 0; number < g->members; number++) {
        unsigned members = 0;
        redundancy_code_stripe(g, number, rows);
        for (int row = 0; row < redundancy_code_strips(g); row++) {
            assert_int_equal(rows[row].redundant, row >= redundancy_code_data_strips(g));
            assert_int_equal(rows[row].index, next[rows[row].redundant][rows[row].member]++);
            assert_false(members >> rows[row].member & 1);
            members |= 1u << rows[row].member;
        }
    }
    for (int m = 0; m < g->members; m++) {
        assert_int_equal(next[0][m], redundancy_code_data_strips(g));
        assert_int_equal(next[1][m], redundancy_code_strips(g) - redundancy_code_data_strips(g));
    }
}

static void every_member_holds_the_same(void **state) {
    (void)state;
    for (int members = 2; members <= 20; members++) {
        check_strips(&(code_group){REDUNDANCY_PARTNER, members, 1});
        for (int lost = 1; lost < members && lost <= REDUNDANCY_MAX_LOST; lost++)
            check_strips(&(code_group){REDUNDANCY_RS, members, lost});
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_members_up_to_k_may_be_lost),
        cmocka_unit_test(the_largest_group_may_lose_its_most),
        cmocka_unit_test(it_is_the_documented_code),
        cmocka_unit_test(a_partner_has_a_copy),
        cmocka_unit_test(every_member_holds_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
