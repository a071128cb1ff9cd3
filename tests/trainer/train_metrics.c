/* The metrics file: after a resume lines of steps that are done again go, and what a kill cut;
 * lines of other runs are moved, and never lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "report/metrics.h"

static const char path[] = "train_metrics.jsonl";

static void put(const char *to, const char *text) {
    FILE *file = fopen(to, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0 && fclose(file) == 0);
}

static void holds(const char *from, const char *want) {
    char found[4096] = "";
    FILE *file = fopen(from, "r");
    assert_non_null(file);
    found[fread(found, 1, sizeof found - 1, file)] = '\0';
    fclose(file);
    assert_string_equal(found, want);
}

#define MINE "00000000000000a1"
#define PARENT "00000000000000b2"
#define OTHER "00000000000000c3"
#define LINE(step, run) "{\"step\": " #step ", \"loss\": 5.5, \"run\": \"" run "\"}\n"
#define UNNAMED(step) "{\"step\": " #step ", \"loss\": 5.5}\n"

static const report_file_run fresh = {.name = MINE, .before = ""};

static report_file_run resumed(uint64_t step) {
    return (report_file_run){.name = MINE, .before = MINE, .step = step};
}

static const char *old_path(int number) {
    static char old[64];
    snprintf(old, sizeof old, "%s.old.%d", path, number);
    return old;
}

static void remove_old(void) {
    for (int number = 1; unlink(old_path(number)) == 0; number++) continue;
}

static void opens(const report_file_run *run) {
    report_metrics *m;
    dcp_error err;
    if (report_metrics_open(path, run, &m, &err) != DCP_OK) fail_msg("%s", err.message);
    report_metrics_close(m);
}

/* Takes the last line off again. */
static void unwrite(void) {
    char text[4096];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    const size_t n = fread(text, 1, sizeof text, file);
    fclose(file);
    assert_true(n > 0 && n < sizeof text && text[n - 1] == '\n');
    const char *before = memrchr(text, '\n', n - 1);
    assert_int_equal(truncate(path, before ? before + 1 - text : 0), 0);
}

/* Adds a line, the first of this start, and takes it off again. */
static void opens_and_writes(const report_file_run *run) {
    report_metrics *m;
    dcp_error err;
    const report_values v = {.step = run->step + 1};
    if (report_metrics_open(path, run, &m, &err) != DCP_OK) fail_msg("%s", err.message);
    if (report_metrics_write(m, &v, &err) != DCP_OK) fail_msg("%s", err.message);
    report_metrics_close(m);
    unwrite();
}

/* The file's lines before the run opens it, and before its first new line; `moved`: what is moved
 * aside, or NULL. */
static void opens_as(const char *before, const report_file_run *run, const char *after,
                     const char *moved) {
    remove_old();
    put(path, before);
    opens_and_writes(run);
    holds(path, after);
    if (moved)
        holds(old_path(1), moved);
    else
        assert_int_equal(access(old_path(1), F_OK), -1);
    assert_int_equal(access(old_path(2), F_OK), -1);
}

static void opens_at(const char *before, uint64_t step, const char *after) {
    const report_file_run run = resumed(step);
    opens_as(before, &run, after, NULL);
}

static void keeps_lines_up_to_the_step(void **state) {
    (void)state;
    opens_at(LINE(1, MINE) LINE(2, MINE) LINE(3, MINE), 2, LINE(1, MINE) LINE(2, MINE));
    opens_at(LINE(1, MINE) LINE(2, MINE), 9, LINE(1, MINE) LINE(2, MINE));
    opens_at("", 4, "");
    opens_as(LINE(1, MINE) LINE(2, MINE), &fresh, "", NULL); /* restarted before its first step */
}

/* A start that ends before its first step may be followed by one that goes on from a later one. */
static void keeps_all_until_it_writes(void **state) {
    (void)state;
    static const char all[] = LINE(1, MINE) LINE(2, MINE) LINE(3, MINE);
    const report_file_run second = resumed(2);
    put(path, all);
    opens(&second);
    holds(path, all);
    opens(&fresh);
    holds(path, all);
    opens_at(all, 3, all);
}

static void drops_what_a_kill_cut(void **state) {
    (void)state;
    opens_at(LINE(1, MINE) "{\"step\": 2, \"lo", 5, LINE(1, MINE));
    opens_at(LINE(1, MINE) "{\"step\": 2}", 5, LINE(1, MINE));
    /* nothing whole is dropped because of what stands before it */
    opens_at(LINE(1, MINE) "\n{\"step\": 2, \"eval_loss\": nan}\n" LINE(3, MINE) "{", 5,
             LINE(1, MINE) "\n{\"step\": 2, \"eval_loss\": nan}\n" LINE(3, MINE));
}

static void other_files_stay(void **state) {
    (void)state;
    report_metrics *m;
    dcp_error err;
    const report_file_run run = resumed(5);
    put(path, "not metrics\n" UNNAMED(1));
    assert_int_equal(report_metrics_open(path, &run, &m, &err), DCP_ERR_ARG);
    assert_non_null(strstr(err.message, "train_metrics.jsonl exists and is not a metrics file"));
    assert_int_equal(report_metrics_open(path, &fresh, &m, &err), DCP_ERR_ARG);
    holds(path, "not metrics\n" UNNAMED(1));
}

/* As somebody who may write to it, but not read it. */
static void what_cannot_be_read_stays(void **state) {
    (void)state;
    report_metrics *m;
    dcp_error err;
    const report_file_run run = resumed(1);
    const uid_t user = geteuid();
    put(path, LINE(1, MINE) LINE(2, MINE));
    assert_int_equal(chmod(path, 0222), 0);
    if (user == 0) assert_int_equal(seteuid(65534), 0);
    const int status = report_metrics_open(path, &run, &m, &err);
    if (user == 0) assert_int_equal(seteuid(user), 0);
    assert_int_equal(status, DCP_ERR_ARG);
    assert_non_null(strstr(err.message, "cannot open train_metrics.jsonl: Permission denied"));
    assert_int_equal(chmod(path, 0644), 0);
    holds(path, LINE(1, MINE) LINE(2, MINE));
}

static void lines_of_others_are_moved(void **state) {
    (void)state;
    const report_file_run run = resumed(2);
    opens_as(UNNAMED(1) UNNAMED(2), &fresh, "", UNNAMED(1) UNNAMED(2));
    opens_as(LINE(1, OTHER) LINE(2, OTHER), &fresh, "", LINE(1, OTHER) LINE(2, OTHER));
    opens_as(LINE(1, OTHER) LINE(2, OTHER), &run, "", LINE(1, OTHER) LINE(2, OTHER));
    opens_as(UNNAMED(1) UNNAMED(2), &run, "", UNNAMED(1) UNNAMED(2));
}

static void a_branch_begins_with_its_history(void **state) {
    (void)state;
    const report_file_run run = {.name = MINE, .before = PARENT, .step = 2};
    static const char before[] = LINE(1, PARENT) LINE(2, PARENT) LINE(3, PARENT);
    opens_as(before, &run, LINE(1, PARENT) LINE(2, PARENT), before);
}

/* Steps of older versions are by no run, and so are their lines. */
static void unnamed_lines_go_on(void **state) {
    (void)state;
    const report_file_run run = {.name = MINE, .before = "", .step = 2};
    opens_as(UNNAMED(1) UNNAMED(2), &run, UNNAMED(1) UNNAMED(2), NULL);
    opens_as(UNNAMED(1) UNNAMED(2) UNNAMED(3), &run, UNNAMED(1) UNNAMED(2),
             UNNAMED(1) UNNAMED(2) UNNAMED(3));
}

/* Whoever comes back finds its lines, and nothing that was moved is written over. */
static void takes_its_lines_back(void **state) {
    (void)state;
    const report_file_run run = resumed(2);
    remove_old();
    put(old_path(1), LINE(1, MINE) LINE(2, MINE) LINE(3, MINE));
    put(old_path(2), LINE(1, OTHER));
    put(path, LINE(1, PARENT) LINE(2, PARENT));
    opens_and_writes(&run);
    holds(path, LINE(1, MINE) LINE(2, MINE));
    holds(old_path(1), LINE(1, MINE) LINE(2, MINE) LINE(3, MINE));
    holds(old_path(2), LINE(1, OTHER));
    holds(old_path(3), LINE(1, PARENT) LINE(2, PARENT));
}

/* A process that holds the file is named; the lock ends with it. */
static void one_process_writes(void **state) {
    (void)state;
    report_metrics *m;
    dcp_error err;
    char who[64];
    int ready[2];
    remove_old();
    put(path, LINE(1, MINE));
    assert_int_equal(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
        const report_file_run run = resumed(1);
        const int status = report_metrics_open(path, &run, &m, NULL);
        if (status == DCP_OK && write(ready[1], "x", 1) == 1) pause();
        _exit(1);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], who, 1), 1);
    close(ready[0]);
    assert_int_equal(report_metrics_open(path, &fresh, &m, &err), DCP_ERR_BUSY);
    snprintf(who, sizeof who, "is written by process %d;", (int)child);
    assert_non_null(strstr(err.message, who));
    holds(path, LINE(1, MINE));
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    opens_and_writes(&fresh);
    holds(path, "");
}

static void writes_nine_digits(void **state) {
    (void)state;
    unlink(path);
    report_metrics *m;
    assert_int_equal(report_metrics_open(path, &fresh, &m, NULL), DCP_OK);
    const report_values v = {
        .step = 7, .loss = 1.0 / 3, .grad_norm = 200.0 / 3, .lr = 1e-3, .mfu = 1.5};
    assert_int_equal(report_metrics_write(m, &v, NULL), DCP_OK);
    const report_values evaluated = {
        .step = 8, .evaluated = 1, .eval_loss = 1.0 / 3, .eval_accuracy = 0.75, .eval_s = 2};
    assert_int_equal(report_metrics_write(m, &evaluated, NULL), DCP_OK);
    const report_values lost = {.step = 9,
                                .loss = NAN,
                                .grad_norm = INFINITY,
                                .tokens_per_s = -INFINITY,
                                .evaluated = 1,
                                .eval_loss = INFINITY,
                                .eval_accuracy = NAN};
    assert_int_equal(report_metrics_write(m, &lost, NULL), DCP_OK);
    report_metrics_close(m);
    char line[1024];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    assert_null(strstr(line, "eval"));
    char second[1024];
    assert_non_null(fgets(second, sizeof second, file));
    json_t *third = json_loadf(file, 0, NULL); /* whatever the numbers are, it is JSON */
    fclose(file);
    assert_true(json_is_null(json_object_get(third, "loss")));
    assert_true(json_is_null(json_object_get(third, "grad_norm")));
    assert_true(json_is_null(json_object_get(third, "tokens_per_s")));
    assert_true(json_is_null(json_object_get(third, "eval_loss")));
    json_decref(third);
    assert_non_null(strstr(
        second,
        ", \"eval_loss\": 0.333333333, \"eval_s\": 2, \"eval_accuracy\": 0.75, \"run\": \"" MINE
        "\"}\n"));
    static const char want[] = "{\"step\": 7, \"loss\": 0.333333333, \"grad_norm\": 66.6666667, ";
    assert_memory_equal(line, want, sizeof want - 1);
    assert_non_null(strstr(line, "\"mfu\": 1, ")); /* a bad measurement of the peak */
}

static void says_what_cannot_be_opened(void **state) {
    (void)state;
    report_metrics *m;
    dcp_error err;
    assert_int_equal(report_metrics_open("no/such/folder/m.jsonl", &fresh, &m, &err), DCP_ERR_ARG);
    assert_non_null(strstr(err.message, "no/such/folder/m.jsonl: No such file"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_lines_up_to_the_step),
        cmocka_unit_test(keeps_all_until_it_writes),
        cmocka_unit_test(drops_what_a_kill_cut),
        cmocka_unit_test(other_files_stay),
        cmocka_unit_test(what_cannot_be_read_stays),
        cmocka_unit_test(lines_of_others_are_moved),
        cmocka_unit_test(a_branch_begins_with_its_history),
        cmocka_unit_test(unnamed_lines_go_on),
        cmocka_unit_test(takes_its_lines_back),
        cmocka_unit_test(one_process_writes),
        cmocka_unit_test(writes_nine_digits),
        cmocka_unit_test(says_what_cannot_be_opened),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    remove_old();
    return failed;
}
