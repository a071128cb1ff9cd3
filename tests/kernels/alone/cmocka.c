#include "cmocka.h"

jmp_buf cmocka_leave;

static int passes(const CMUnitTest *test) {
    void *state = test->initial_state;
    if (setjmp(cmocka_leave)) return 0;
    if (test->setup_func && test->setup_func(&state)) return 0;
    test->test_func(&state);
    return !test->teardown_func || test->teardown_func(&state) == 0;
}

int cmocka_run(const CMUnitTest *tests, size_t n) {
    int failed = 0;
    for (size_t i = 0; i < n; i++) {
        const int passed = passes(&tests[i]);
        printf("%s %s\n", passed ? "ok    " : "FAILED", tests[i].name);
        fflush(stdout);
        failed += !passed;
    }
    printf("%zu tests, %d failed\n", n, failed);
    return failed;
}
