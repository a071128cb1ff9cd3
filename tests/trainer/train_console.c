/* The line of a step: at most 100 columns whatever the values, with what is left of the run; means
 * where lines stand for several steps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "report/console.h"

static const report_values usual = {.step = 120,
                                    .loss = 2.345678,
                                    .grad_norm = 0.8123,
                                    .lr = 3e-4,
                                    .tokens_per_s = 51234,
                                    .mfu = 0.42,
                                    .step_s = 0.512,
                                    .save_stall_s = 0.1,
                                    .mem_peak_bytes = 612 << 20,
                                    .imbalance = 1.25};

static void has_what_people_look_for(void **state) {
    (void)state;
    char text[REPORT_LINE_COLUMNS + 1];
    report_console_line(&usual, 1000, 1, 450.56, REPORT_LINE_COLUMNS, text);
    assert_string_equal(text, "step 120/1000  loss 2.34568  norm 0.812  lr 0.0003  51234 tok/s  "
                              "0.512 s  left 7m31s  mfu 42%");
    report_values images = usual;
    images.step = 1000;
    images.save_stall_s = images.imbalance = 0;
    report_console_line(&images, 1000, 0, -1, REPORT_LINE_COLUMNS, text);
    assert_string_equal(text, "step 1000/1000  loss 2.34568  norm 0.812  lr 0.0003  "
                              "51234 samples/s  0.512 s  mfu 42%  612 MiB");
}

static void tells_who_is_slow(void **state) {
    (void)state;
    char text[REPORT_LINE_COLUMNS + 1];
    const report_values uneven = {.step = 7, .imbalance = 1.25, .slowest_rank = 3};
    report_console_line(&uneven, 9, 1, -1, REPORT_LINE_COLUMNS, text);
    assert_non_null(strstr(text, "imbalance 1.25 (rank 3)"));
}

static void tells_the_devices_memory(void **state) {
    (void)state;
    char text[REPORT_LINE_COLUMNS + 1];
    const report_values on_device = {
        .step = 7, .mem_peak_bytes = 612 << 20, .device_peak_bytes = 77 << 20};
    report_console_line(&on_device, 9, 1, -1, REPORT_LINE_COLUMNS, text);
    assert_non_null(strstr(text, "77 MiB"));
    assert_null(strstr(text, "612 MiB"));
}

static void fits_whatever_the_values(void **state) {
    (void)state;
    static const double numbers[] = {0, 1.5, -1e-300, 1e30, 1e300, INFINITY, NAN};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        for (int columns = 20; columns <= REPORT_LINE_COLUMNS; columns += 8) {
            char text[REPORT_LINE_COLUMNS + 1];
            const double x = numbers[i];
            const report_values v = {.step = 2147483647,
                                     .loss = x,
                                     .grad_norm = x,
                                     .lr = x,
                                     .tokens_per_s = x,
                                     .mfu = x,
                                     .step_s = x,
                                     .save_stall_s = x,
                                     .mem_peak_bytes = UINT64_MAX,
                                     .imbalance = x};
            report_console_line(&v, 2147483647, 0, x, columns, text);
            assert_true(strlen(text) <= (size_t)columns);
        }
}

static void tells_what_is_left(void **state) {
    (void)state;
    static const struct {
        double seconds;
        const char *text;
    } times[] = {{0.2, "left 0s"},
                 {59.4, "left 59s"},
                 {61, "left 1m01s"},
                 {7200, "left 2h00m"},
                 {90000, "left 1d01h"}};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        char text[REPORT_LINE_COLUMNS + 1];
        report_console_line(&usual, 1000, 1, times[i].seconds, 60, text);
        assert_non_null(strstr(text, times[i].text));
    }
}

/* What is written to stdout while steps 1 to n of 7, of 1, 2, 3 ... seconds, are shown. */
static void show(uint64_t every, uint64_t n, char *out, size_t size) {
    char path[] = "console-XXXXXX";
    const int to = mkstemp(path), before = dup(STDOUT_FILENO);
    report_console c;
    fflush(stdout);
    assert_true(to >= 0 && before >= 0 && dup2(to, STDOUT_FILENO) >= 0);
    report_console_begin(&c, every, n > 7 ? n : 7, 1, 0);
    for (uint64_t step = 1; step <= n; step++) {
        report_values v = usual;
        v.step = step;
        v.step_s = (double)step;
        v.tokens_per_s = 100 / v.step_s;
        assert_int_equal(report_console_step(&c, &v), 0);
    }
    dup2(before, STDOUT_FILENO);
    close(before);
    const ssize_t bytes = pread(to, out, size - 1, 0);
    close(to);
    unlink(path);
    assert_true(bytes >= 0);
    out[bytes] = '\0';
}

static void lines_stand_for_the_steps_before(void **state) {
    (void)state;
    char out[4096];
    show(3, 7, out, sizeof out);
    const char *second = strstr(out, "step 6/7"), *last = strstr(out, "step 7/7");
    assert_true(strncmp(out, "step 3/7", 8) == 0 && second && last);
    assert_null(strstr(out, "step 1/7"));
    /* steps 4 to 6: 300 tokens in 15 s */
    assert_non_null(strstr(second, "20 tok/s  5.000 s  left "));
    assert_true(strstr(last, "14 tok/s  7.000 s  mfu") && !strstr(last, "left"));
    show(1, 2, out, sizeof out);
    assert_non_null(strstr(out, "step 2/7"));
    /* the first step warms up: five more like the second */
    assert_non_null(strstr(out, "2.000 s  left 10s"));
}

/* Thousands of short steps: a line for each of the first, for the last, and a few between. */
static void short_steps_are_not_all_told(void **state) {
    (void)state;
    enum { STEPS = 2000 };
    static char out[STEPS * (REPORT_LINE_COLUMNS + 1)];
    size_t lines = 0;
    show(0, STEPS, out, sizeof out);
    for (const char *at = out; (at = strchr(at, '\n')); at++) lines++;
    assert_non_null(strstr(out, "step 20/2000"));
    assert_non_null(strstr(out, "step 2000/2000"));
    assert_true(lines > REPORT_FIRST_LINES && lines < STEPS / 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(has_what_people_look_for),
        cmocka_unit_test(tells_who_is_slow),
        cmocka_unit_test(tells_the_devices_memory),
        cmocka_unit_test(fits_whatever_the_values),
        cmocka_unit_test(tells_what_is_left),
        cmocka_unit_test(lines_stand_for_the_steps_before),
        cmocka_unit_test(short_steps_are_not_all_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
