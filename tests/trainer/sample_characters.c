/* Text goes out in whole characters, however its bytes come; what is no UTF-8 becomes what Python's
 * errors="replace" makes of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sample/tokens.h"

#define BAD "\xef\xbf\xbd"

/* What is written of the bytes, `step` of which come at a time. */
static void check(const char *bytes, const char *expected) {
    const size_t n = strlen(bytes);
    for (size_t step = 1; step <= n; step++) {
        sample_characters c = {0};
        char *text = NULL;
        size_t size = 0;
        FILE *to = open_memstream(&text, &size);
        for (size_t i = 0; i < n; i += step)
            sample_characters_put(&c, bytes + i, n - i < step ? n - i : step, to);
        fclose(to);
        assert_string_equal(text, expected);
        free(text);
    }
}

static void whole(void **state) {
    (void)state;
    check("plain", "plain");
    check("\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82!", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82!");
    check("a\xc3", "a"); /* begun: the rest may come */
    check("a\xe2\x82", "a");
    check("a\xf0\x9f\x99", "a");
}

static void replaced(void **state) {
    (void)state;
    check("\xff", BAD);
    check("\x80z", BAD "z");
    check("\xc0\xaf", BAD BAD);                 /* an overlong slash */
    check("\xe0\x80\xaf", BAD BAD BAD);         /* the same in three */
    check("\xed\xa0\x80", BAD BAD BAD);         /* a surrogate */
    check("\xf4\x90\x80\x80", BAD BAD BAD BAD); /* above U+10FFFF */
    check("\xe2\x82z", BAD "z");                /* one for what was begun */
    check("\xf0\x9f\x99\xc3\xa9", BAD "\xc3\xa9");
    check("\xc3\xc3\xa9", BAD "\xc3\xa9");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(whole), cmocka_unit_test(replaced)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
