/* As much of cmocka as the kernels' tests use, for machines that lack it. */
#ifndef TESTS_KERNELS_CMOCKA_H
#define TESTS_KERNELS_CMOCKA_H

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

typedef struct CMUnitTest {
    const char *name;
    void (*test_func)(void **state);
    int (*setup_func)(void **state), (*teardown_func)(void **state); /* or NULL; give 0 */
    void *initial_state;
} CMUnitTest;

extern jmp_buf cmocka_leave; /* a case that fails leaves by it */

#define fail_msg(...)                                                                              \
    do {                                                                                           \
        printf("    %s:%d: ", __FILE__, __LINE__);                                                 \
        printf(__VA_ARGS__);                                                                       \
        putchar('\n');                                                                             \
        longjmp(cmocka_leave, 1);                                                                  \
    } while (0)
#define assert_true(condition)                                                                     \
    do {                                                                                           \
        if (!(condition)) fail_msg("%s", #condition);                                              \
    } while (0)
#define assert_int_equal(a, b) assert_true((a) == (b))
#define assert_non_null(p) assert_true((p) != NULL)
#define assert_null(p) assert_true((p) == NULL)
#define assert_memory_equal(a, b, size) assert_true(memcmp((a), (b), (size)) == 0)
#define cmocka_unit_test_setup_teardown(function, setup, teardown)                                 \
    { #function, function, setup, teardown, NULL }
#define cmocka_unit_test(function) cmocka_unit_test_setup_teardown(function, NULL, NULL)

/* How many failed. */
int cmocka_run(const CMUnitTest *tests, size_t n);
#define cmocka_run_group_tests(tests, setup, teardown)                                             \
    cmocka_run(tests, sizeof(tests) / sizeof *(tests))

#endif
