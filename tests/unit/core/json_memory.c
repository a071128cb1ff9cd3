/* If an allocation fails while JSON is read, that is the reported error: the text is never
 * considered a different one, or missing. */
#include "core/json.h"
#include "crash/refuse.h"
#include "support/core_fixture.h"

static const char text[] =
    "{\"a key of many bytes, and more of them\":[\"a value of many bytes, \\u00e9\\ud83d\\ude00\","
    "0.12345678901234567,-1234567890123456789,18446744073709551615,true,null,{\"n\":{\"n\":[]}}],"
    "\"seed\":1,\"step\":1200,\"state_id\":\"0123456789abcdef\"}";

static int read_canonical(char **out, dcp_error *err) {
    json_t *value;
    const int status = core_json_parse_object(text, sizeof text - 1, &value, err);
    *out = status ? NULL : core_json_canonical(value);
    if (!status) json_decref(value);
    return status ? status : *out ? DCP_OK : DCP_ERR_NO_MEMORY;
}

static void a_failed_allocation_is_told(void **state) {
    char *right, *found;
    int failures = 0;
    dcp_error err = {0};
    (void)state;
    refuse_begin("", 0, 0);
    assert_int_equal(read_canonical(&right, &err), DCP_OK);
    const long calls = refuse_end();
    if (!calls) { /* a sanitizer's own malloc */
        free(right);
        skip();
    }
    for (long at = 1; at <= calls; at++) {
        refuse_begin("", 0, at);
        const int status = read_canonical(&found, &err);
        refuse_end();
        if (status) assert_int_equal(status, DCP_ERR_NO_MEMORY);
        if (!status) assert_string_equal(found, right);
        failures += status != DCP_OK;
        free(found);
    }
    assert_true(failures > 30);
    free(right);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_failed_allocation_is_told)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
