/* The stacks of processes, as written for ranks that hang: with gdb, without gdb, and with a gdb
 * that hangs itself. Afterwards the processes continue, or remain stopped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/agent/processes.h"

enum { LIMIT_S = 60 };

/* Answers each byte that it receives; another of its threads waits forever. */
typedef struct child {
    pid_t pid;
    int to, from;
} child;

static volatile int never;

static __attribute__((noinline)) void *hangs_for_ever(void *ctx) {
    while (!never) pause();
    return ctx;
}

static __attribute__((noinline)) void answers_each_byte(int from, int to) {
    for (char byte; read(from, &byte, 1) == 1;)
        if (write(to, &byte, 1) != 1) break;
    never = 0; /* so that a call here is not the last instruction */
}

static int answers(const child *c) {
    char byte = 'x';
    struct pollfd answer = {.fd = c->from, .events = POLLIN};
    return write(c->to, &byte, 1) == 1 && poll(&answer, 1, LIMIT_S * 1000) == 1 &&
           read(c->from, &byte, 1) == 1;
}

static child start_child(void) {
    int in[2], out[2];
    child c;
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    c.pid = fork();
    assert_true(c.pid >= 0);
    if (c.pid == 0) {
        pthread_t thread;
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* in case a check fails */
        close(in[1]);                     /* otherwise it would not notice the end of its parent */
        close(out[0]);
        if (pthread_create(&thread, NULL, hangs_for_ever, NULL) != 0) _exit(1);
        answers_each_byte(in[0], out[1]);
        _exit(0);
    }
    close(in[0]);
    close(out[1]);
    c.to = in[1];
    c.from = out[0];
    assert_true(answers(&c)); /* the thread exists */
    return c;
}

static void end_child(const child *c) {
    kill(c->pid, SIGKILL);
    waitpid(c->pid, NULL, 0);
    close(c->to);
    close(c->from);
}

/* What is written about the processes; freed by the caller. */
static char *stacks_of(const pid_t *pids, size_t n, double limit_s) {
    FILE *file = tmpfile();
    assert_non_null(file);
    launcher_stacks_write(pids, NULL, n, limit_s, fileno(file));
    const long bytes = (fseek(file, 0, SEEK_END), ftell(file));
    char *text = calloc(1, (size_t)bytes + 1);
    assert_non_null(text);
    rewind(file);
    assert_int_equal(fread(text, 1, (size_t)bytes, file), bytes);
    fclose(file);
    return text;
}

static void expect_text(const char *text, const char *expected) {
    if (!strstr(text, expected)) fail_msg("no '%s' in:\n%s", expected, text);
}

static size_t count_of(const char *text, const char *what) {
    size_t n = 0;
    for (; (text = strstr(text, what)); text++) n++;
    return n;
}

static void expect_title(const char *text, pid_t pid) {
    char title[64];
    snprintf(title, sizeof title, "== process %d (stacks_written) ==\n", (int)pid);
    expect_text(text, title);
}

/* Makes PATH a folder that contains only a `gdb` with these lines. */
static void set_gdb(const char *lines, char *folder) {
    char path[128];
    strcpy(folder, "/tmp/stacks_written.XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/gdb", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "#!/bin/sh\n%s\n", lines);
    fclose(file);
    assert_int_equal(chmod(path, 0700), 0);
    setenv("PATH", folder, 1);
}

static void remove_gdb(const char *folder, const char *path) {
    char file[128];
    snprintf(file, sizeof file, "%s/gdb", folder);
    unlink(file);
    rmdir(folder);
    setenv("PATH", path, 1);
}

static void without_tools_what_proc_knows_of_each_thread_is_told(void **state) {
    const child a = start_child(), b = start_child();
    const pid_t pids[] = {a.pid, b.pid};
    char *path = strdup(getenv("PATH"));
    (void)state;
    setenv("PATH", "/nowhere", 1);
    char *text = stacks_of(pids, 2, LIMIT_S);
    expect_title(text, a.pid);
    expect_title(text, b.pid);
    assert_int_equal(count_of(text, "(stacks_written), state "), 4);
    expect_text(text, "system call ");
    setenv("PATH", path, 1);
    end_child(&a);
    end_child(&b);
    free(path);
    free(text);
}

static void one_that_is_gone_is_told_and_the_next_one_follows(void **state) {
    const child a = start_child();
    const pid_t gone = fork();
    (void)state;
    if (gone == 0) _exit(0);
    waitpid(gone, NULL, 0);
    char *text = stacks_of((pid_t[]){gone, a.pid}, 2, LIMIT_S);
    expect_text(text, "(gone) ==\n");
    expect_title(text, a.pid);
    end_child(&a);
    free(text);
}

static void with_gdb_functions_are_told_and_the_process_runs_on(void **state) {
    const child a = start_child();
    (void)state;
    if (system("gdb --version >/dev/null 2>&1") != 0) skip();
    char *text = stacks_of(&a.pid, 1, LIMIT_S);
    if (strstr(text, "Operation not permitted")) { /* kernel.yama.ptrace_scope, a container */
        end_child(&a);
        skip();
    }
    expect_text(text, "hangs_for_ever");
    expect_text(text, "answers_each_byte");
    assert_true(answers(&a));
    end_child(&a);
    free(text);
}

static void a_stopped_process_stays_stopped(void **state) {
    const child a = start_child();
    int status;
    (void)state;
    kill(a.pid, SIGSTOP);
    assert_int_equal(waitpid(a.pid, &status, WUNTRACED), a.pid);
    char *text = stacks_of(&a.pid, 1, LIMIT_S);
    expect_text(text, "state T (stopped)");
    while (waitpid(a.pid, &status, WCONTINUED | WNOHANG) > 0)
        assert_false(WIFCONTINUED(status)); /* the parent does not see gdb's own stops */
    kill(a.pid, SIGCONT);
    assert_true(answers(&a));
    end_child(&a);
    free(text);
}

static void one_that_hangs_is_ended_and_leaves_no_process_stopped(void **state) {
    const child a = start_child(), b = start_child();
    const pid_t pids[] = {a.pid, b.pid};
    char *path = strdup(getenv("PATH")), folder[64];
    (void)state;
    set_gdb("kill -STOP $4; exec /bin/sleep 1000", folder); /* gdb -nx -batch -p PID */
    char *text = stacks_of(pids, 2, 0.5);
    remove_gdb(folder, path);
    assert_int_equal(count_of(text, "gdb did not answer within 0.5 s\n"), 2);
    expect_title(text, b.pid);
    assert_true(answers(&a));
    assert_true(answers(&b));
    end_child(&a);
    end_child(&b);
    free(path);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_tools_what_proc_knows_of_each_thread_is_told),
        cmocka_unit_test(one_that_is_gone_is_told_and_the_next_one_follows),
        cmocka_unit_test(with_gdb_functions_are_told_and_the_process_runs_on),
        cmocka_unit_test(a_stopped_process_stays_stopped),
        cmocka_unit_test(one_that_hangs_is_ended_and_leaves_no_process_stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
