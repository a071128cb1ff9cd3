/* The canonical JSON: equal values give equal bytes, and numbers are read back unchanged. */
#include <malloc.h>

#include "core/json.h"
#include "support/core_fixture.h"

static void assert_canonical(const char *text, const char *expected) {
    json_t *value;
    dcp_error err = {0};
    if (core_json_parse_object(text, strlen(text), &value, &err)) fail_msg("%s", err.message);
    char *canonical = core_json_canonical(value);
    assert_string_equal(canonical, expected);
    json_decref(value);
    free(canonical);
}

static void keys_are_sorted_and_spaces_go(void **state) {
    (void)state;
    assert_canonical("{}", "{}");
    assert_canonical("{\"b\": 1, \"a\": {\"d\": [3, 1, 2], \"c\": null}}",
                     "{\"a\":{\"c\":null,\"d\":[3,1,2]},\"b\":1}");
    assert_canonical("{\"a\":{\"c\":null,\"d\":[3,1,2]},\"b\":1}",
                     "{\"a\":{\"c\":null,\"d\":[3,1,2]},\"b\":1}");
    assert_canonical("{\"B\":true,\"a\":\"\\u00e9\\n\"}", "{\"B\":true,\"a\":\"\xc3\xa9\\n\"}");
}

static void numbers_are_short_and_exact(void **state) {
    (void)state;
    assert_canonical("{\"x\":0.1}", "{\"x\":0.1}");
    assert_canonical("{\"x\":0.10000000000000001}", "{\"x\":0.1}");
    assert_canonical("{\"x\":1e-6}", "{\"x\":1e-6}");
    assert_canonical("{\"x\":9007199254740993}", "{\"x\":9007199254740993}");
    assert_canonical("{\"x\":-9223372036854775808}", "{\"x\":-9223372036854775808}");
    assert_canonical("{\"x\":1.0,\"y\":1}", "{\"x\":1.0,\"y\":1}");
    assert_canonical("{\"x\":0.30000000000000004}", "{\"x\":0.30000000000000004}");
}

/* Only in numbers: strings and keys with the same digits, and reals, are unchanged. */
static void integers_of_64_bits_are_exact(void **state) {
    (void)state;
    assert_canonical("{\"seed\": 18446744073709551615,\"a\":[9223372036854775808]}",
                     "{\"a\":[9223372036854775808],\"seed\":18446744073709551615}");
    assert_canonical("{\"x\":9223372036854775807,\"y\":12345678901234567890}",
                     "{\"x\":9223372036854775807,\"y\":12345678901234567890}");
    assert_canonical("{\"18446744073709551615\":\"18446744073709551615\",\"b\":"
                     "18446744073709551615,\"c\":\"\\\\u00001\",\"d\":\"\\\"u0000\"}",
                     "{\"18446744073709551615\":\"18446744073709551615\",\"b\":"
                     "18446744073709551615,\"c\":\"\\\\u00001\",\"d\":\"\\\"u0000\"}");
    assert_canonical("{\"a\":18446744073709551616.0,\"b\":18446744073709551616e0}",
                     "{\"a\":1.8446744073709552e19,\"b\":1.8446744073709552e19}");
    assert_canonical("{\"a\":0.18446744073709551616,\"b\":1e-1000000000000000000}",
                     "{\"a\":0.1844674407370955,\"b\":0.0}");
    json_t *value;
    assert_int_equal(core_json_parse_object("{\"a\":18446744073709551615}", 26, &value, NULL), 0);
    assert_false(json_is_integer(json_object_get(value, "a")));
    json_decref(value);
}

static void check_refusal(const char *text, const char *why) {
    json_t *value;
    dcp_error err = {0};
    assert_int_equal(core_json_parse_object(text, strlen(text), &value, &err), DCP_ERR_ARG);
    if (!strstr(err.message, why)) fail_msg("%s: %s", text, err.message);
}

static void integers_beyond_are_refused(void **state) {
    (void)state;
    check_refusal(
        "{\"a\":1,\n \"b\":18446744073709551616}",
        "the integer 18446744073709551616 is outside -2^63 to 2^64 - 1 (write a string or "
        "a real) at line 2, column 6");
    check_refusal("{\"a\":-9223372036854775809}", "the integer -9223372036854775809 is outside");
    check_refusal("{\"a\":[123456789012345678901234567890]}", "is outside -2^63");
    check_refusal("{9223372036854775808:1}", "JSON: ");
    check_refusal("{\"a\":1 9223372036854775808}", "JSON: ");
    check_refusal("{\"a\":09223372036854775808}", "JSON: ");
    check_refusal("{\"a\":9223372036854775808x}", "JSON: ");
    check_refusal("{\"a\":9223372036854775808,\"b\":\"\\u0000\"}", "JSON: ");
    check_refusal("{\"a\":9223372036854775808,\"a\":2}", "duplicate");
}

static void random_reals_come_back(void **state) {
    (void)state;
    for (int i = 0; i < 3000; i++) {
        uint64_t bits = any();
        double x, back;
        memcpy(&x, &bits, sizeof x);
        if (x - x != 0) continue; /* not finite */
        json_t *value = json_pack("{s:f}", "x", x);
        char *text = core_json_canonical(value), *again;
        assert_int_equal(sscanf(text, "{\"x\":%lf}", &back), 1);
        assert_memory_equal(&x, &back, sizeof x);
        json_t *parsed;
        assert_int_equal(core_json_parse_object(text, strlen(text), &parsed, NULL), DCP_OK);
        again = core_json_canonical(parsed);
        assert_string_equal(again, text);
        json_decref(parsed);
        json_decref(value);
        free(again);
        free(text);
    }
}

static void what_is_no_object_is_refused(void **state) {
    (void)state;
    static const char *const bad[] = {"",
                                      "[1]",
                                      "1",
                                      "null",
                                      "{\"a\":}",
                                      "{\"a\":1,\"a\":2}",
                                      "{} x",
                                      "{\"a\":1}}",
                                      "{\"a\":\"\\u0000\"}",
                                      "{a:1}",
                                      "{\"a\":NaN}",
                                      "{\"a\":\"\xff\"}",
                                      "{\"a\":1e999}",
                                      "{\"a\":92233720368547758080}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        json_t *value = NULL;
        dcp_error err = {0};
        assert_int_equal(core_json_parse_object(bad[i], strlen(bad[i]), &value, &err), DCP_ERR_ARG);
        assert_non_null(strstr(err.message, "JSON: "));
    }
}

static void no_text_is_an_empty_object(void **state) {
    (void)state;
    json_t *value;
    assert_int_equal(core_json_parse_object(NULL, 0, &value, NULL), DCP_OK);
    assert_int_equal(json_object_size(value), 0);
    json_decref(value);
}

static void values_are_counted(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint64_t values;
    } cases[] = {
        {"{}", 1},
        {" { } ", 1},
        {"{\"a\":[]}", 2},
        {"{\"a\":[{},{}, [ ] ],\"b\":null}", 6},
        {"{\"a,[{\":\"x,y\\\",{[\\\\\",\"b\":1}", 3},
        {"{\"a\":[1,2.5,true,\"\"]}", 6},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(core_json_count_values(cases[i].text, strlen(cases[i].text)),
                         cases[i].values);
}

/* Returns {"a":[{},{},...]} with n values, allocated with malloc; or with 10 instead of {}. */
static char *many_values(size_t n, const char *each) {
    char *text = malloc(3 * n + 16), *at = text;
    assert_non_null(text);
    at += sprintf(at, "{\"a\":[%s", each);
    for (size_t i = 3; i < n; i++) {
        *at = ',';
        memcpy(at + 1, each, 2);
        at += 3;
    }
    memcpy(at, "]}", 3);
    return text;
}

/* Objects need the most memory. A refused text needs none. */
static void too_many_values_are_refused(void **state) {
    (void)state;
    json_t *value;
    dcp_error err = {0};
    char *most = many_values(CORE_JSON_MOST_VALUES, "10"), *more = many_values(4u << 20, "{}");
    assert_int_equal(core_json_parse_object(most, strlen(most), &value, NULL), DCP_OK);
    char *text = core_json_canonical(value);
    assert_string_equal(text, most);
    free(text);
    json_decref(value);
    const struct mallinfo2 before = mallinfo2();
    assert_int_equal(core_json_parse_object(more, strlen(more), &value, &err), DCP_ERR_ARG);
    assert_non_null(strstr(err.message, "JSON: 4194304 values, but at most 1048576"));
    assert_int_equal(mallinfo2().uordblks, before.uordblks);
    free(most);
    free(more);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_sorted_and_spaces_go),
        cmocka_unit_test(numbers_are_short_and_exact),
        cmocka_unit_test(integers_of_64_bits_are_exact),
        cmocka_unit_test(integers_beyond_are_refused),
        cmocka_unit_test(random_reals_come_back),
        cmocka_unit_test(what_is_no_object_is_refused),
        cmocka_unit_test(no_text_is_an_empty_object),
        cmocka_unit_test(values_are_counted),
        cmocka_unit_test(too_many_values_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
