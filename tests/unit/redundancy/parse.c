/* The option's text: what is accepted, and that anything else is refused with a list of what is
 * accepted. */
#include "redundancy/groups.h"
#include "support/core_fixture.h"

static void it_reads(void **state) {
    (void)state;
    static const struct {
        const char *text;
        redundancy_spec spec;
    } good[] = {
        {NULL, {REDUNDANCY_NONE, 0}},    {"", {REDUNDANCY_NONE, 0}},
        {"none", {REDUNDANCY_NONE, 0}},  {"partner", {REDUNDANCY_PARTNER, 1}},
        {"rs(1)", {REDUNDANCY_RS, 1}},   {"rs(2)", {REDUNDANCY_RS, 2}},
        {"rs(16)", {REDUNDANCY_RS, 16}},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        redundancy_spec spec = {REDUNDANCY_RS, 99};
        assert_int_equal(redundancy_parse(good[i].text, &spec, NULL), DCP_OK);
        assert_int_equal(spec.kind, good[i].spec.kind);
        assert_int_equal(spec.lost, good[i].spec.lost);
    }
}

static void it_refuses(void **state) {
    (void)state;
    static const char *const bad[] = {
        "None",   "rs",         "rs()",   "rs(0)",  "rs(17)",  "rs(-1)",         "rs(1",
        "rs(1) ", "rs(1)x",     " rs(1)", "rs( 1)", "rs(01)",  "rs(4294967297)", "partner ",
        "rs(1.)", "partner(1)", "xor",    "RS(1)",  "rs(2,1)",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        redundancy_spec spec = {REDUNDANCY_RS, 99};
        dcp_error err = {0};
        assert_int_equal(redundancy_parse(bad[i], &spec, &err), DCP_ERR_ARG);
        assert_int_equal(spec.lost, 99);
        assert_non_null(strstr(err.message, bad[i]));
        assert_non_null(
            strstr(err.message, "\"none\", \"partner\" or \"rs(K)\" with K from 1 to 16"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_reads),
        cmocka_unit_test(it_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
