/* The metrics file after a resume: lines of steps that are done again go, and what a kill cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "report/metrics.h"

static const char path[] = "train_metrics.jsonl";

static void put(const char *text) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0 && fclose(file) == 0);
}

static void holds(const char *want) {
    char found[4096] = "";
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    found[fread(found, 1, sizeof found - 1, file)] = '\0';
    fclose(file);
    assert_string_equal(found, want);
}

static void opens_at(const char *before, uint64_t step, const char *after) {
    report_metrics *m;
    put(before);
    assert_int_equal(report_metrics_open(path, step, &m, NULL), DCP_OK);
    report_metrics_close(m);
    holds(after);
}

#define ONE "{\"step\": 1, \"loss\": 5.5}\n"
#define TWO "{\"step\": 2, \"loss\": 5.25}\n"
#define THREE "{\"step\": 3, \"loss\": 5.125}\n"

static void keeps_lines_up_to_the_step(void **state) {
    (void)state;
    opens_at(ONE TWO THREE, 2, ONE TWO);
    opens_at(ONE TWO THREE, 9, ONE TWO THREE);
    opens_at("", 4, "");
}

static void drops_what_a_kill_cut(void **state) {
    (void)state;
    opens_at(ONE "{\"step\": 2, \"lo", 5, ONE);
    opens_at(ONE "{\"step\": 2}", 5, ONE);
    opens_at(ONE "\n" THREE, 5, ONE);
}

static void other_files_stay(void **state) {
    (void)state;
    report_metrics *m;
    dcp_error err;
    char old[64];
    put("not metrics\n" ONE);
    assert_int_equal(report_metrics_open(path, 5, &m, &err), DCP_ERR_ARG);
    assert_non_null(strstr(err.message, "train_metrics.jsonl is there, and no metrics file"));
    assert_int_equal(report_metrics_set_aside(path, old, sizeof old, &err), DCP_ERR_ARG);
    holds("not metrics\n" ONE);
}

static void a_fresh_start_moves_what_is_there(void **state) {
    (void)state;
    dcp_error err;
    char old[64];
    put(ONE TWO);
    assert_int_equal(report_metrics_set_aside(path, old, sizeof old, &err), DCP_OK);
    assert_string_equal(old, "train_metrics.jsonl.old");
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(rename(old, path), 0);
    holds(ONE TWO);
    put("");
    assert_int_equal(report_metrics_set_aside(path, old, sizeof old, &err), DCP_OK);
    assert_string_equal(old, "");
}

static void writes_nine_digits(void **state) {
    (void)state;
    unlink(path);
    report_metrics *m;
    assert_int_equal(report_metrics_open(path, 0, &m, NULL), DCP_OK);
    const report_values v = {
        .step = 7, .loss = 1.0 / 3, .grad_norm = 200.0 / 3, .lr = 1e-3, .mfu = 1.5};
    assert_int_equal(report_metrics_write(m, &v, NULL), DCP_OK);
    const report_values evaluated = {
        .step = 8, .evaluated = 1, .eval_loss = 1.0 / 3, .eval_accuracy = 0.75, .eval_s = 2};
    assert_int_equal(report_metrics_write(m, &evaluated, NULL), DCP_OK);
    report_metrics_close(m);
    char line[1024];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    assert_null(strstr(line, "eval"));
    char second[1024];
    assert_non_null(fgets(second, sizeof second, file));
    fclose(file);
    assert_non_null(
        strstr(second, ", \"eval_loss\": 0.333333333, \"eval_s\": 2, \"eval_accuracy\": 0.75}\n"));
    static const char want[] = "{\"step\": 7, \"loss\": 0.333333333, \"grad_norm\": 66.6666667, ";
    assert_memory_equal(line, want, sizeof want - 1);
    assert_non_null(strstr(line, "\"mfu\": 1, ")); /* a bad measurement of the peak */
}

static void says_what_cannot_be_opened(void **state) {
    (void)state;
    report_metrics *m;
    dcp_error err;
    assert_int_equal(report_metrics_open("no/such/folder/m.jsonl", 0, &m, &err), DCP_ERR_IO);
    assert_non_null(strstr(err.message, "no/such/folder/m.jsonl: No such file"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_lines_up_to_the_step),
        cmocka_unit_test(drops_what_a_kill_cut),
        cmocka_unit_test(other_files_stay),
        cmocka_unit_test(a_fresh_start_moves_what_is_there),
        cmocka_unit_test(writes_nine_digits),
        cmocka_unit_test(says_what_cannot_be_opened),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
