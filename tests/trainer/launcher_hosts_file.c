/* dcp-run's host files, and the lists of nodes that Slurm gives a job. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/hosts/hosts.h"
#include "programs/program.h"
#include "support/stderr_text.h"

/* "a:1 b:2": what a file's text says. */
static void says(const char *text, const char *want) {
    launcher_hosts hosts;
    char got[4096] = "";
    assert_int_equal(launcher_hosts_parse(text, "FILE", &hosts), 0);
    for (size_t i = 0; i < hosts.n; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s:%d", i ? " " : "",
                 hosts.at[i].name, hosts.at[i].slots);
    launcher_hosts_free(&hosts);
    assert_string_equal(got, want);
}

/* A text is refused by a message that contains `want`. */
static void refuses(const char *text, const char *want) {
    launcher_hosts hosts;
    stderr_text_begin();
    const int status = launcher_hosts_parse(text, "FILE", &hosts);
    const char *message = stderr_text_end();
    assert_int_equal(status, PROGRAM_USAGE);
    assert_int_equal(hosts.n, 0);
    if (!strstr(message, want)) fail_msg("no '%s' in: %s", want, message);
}

static void reads_what_mpirun_reads(void **state) {
    (void)state;
    says("n1 slots=8\nn2 slots=4 max_slots=9\n", "n1:8 n2:4");
    says("n1 slots = 8\r\n\n  \tn2.site.org\tcpu=2\n10.0.0.7 count=3",
         "n1:8 n2.site.org:2 10.0.0.7:3");
    says("# all\nn1 slots=2 // two\nn2 /* not\n n9 slots=8 */ n3 slots=3", "n1:2 n2:1 n3:3");
    says("n1 max-slots=5\nn2 slots=0\n", "n1:5 n2:0");
}

static void counts_each_mention(void **state) {
    (void)state;
    says("n1\nn2\nn1\nn1\n", "n1:3 n2:1");
    says("n1 slots=4\nn1\n", "n1:5");
    char own[HOST_NAME_MAX + 1] = "", text[HOST_NAME_MAX + 64];
    gethostname(own, sizeof own - 1);
    snprintf(text, sizeof text, "localhost\n%s\n127.0.0.1\n", own);
    says(text, "localhost:3");
}

static void says_what_is_wrong_and_where(void **state) {
    (void)state;
    refuses("", "FILE names no host with a slot");
    refuses("# n1\nn1 slots=0\n", "FILE names no host with a slot");
    refuses("n1 slots=2\nn1 slots=3\n", "FILE:2: ");
    refuses("n1 slots=2\nn2:8\n", "'slots=N'");
    refuses("n1,n2 slots=2\n", "FILE:1: not a host name 'n1,n2'");
    refuses("n1\nn2 slots=x\n", "FILE:2: not a number of slots 'x'");
    refuses("n1 slots=-1\n", "FILE:1: not a number of slots '-1'");
    refuses("n1 slots=5000\n", "from 0 to 4096");
    refuses("n1 slots=4294967297\n", "from 0 to 4096");
    refuses("n1 slots\n", "FILE:1: a value is missing at 'slots'");
    refuses("n1 slots=1 slots=1\n", "a second value is given by 'slots'");
    refuses("n1 slots=4 max_slots=3\n", "max_slots");
    refuses("n1 boards=3\n", "unknown word 'boards'");
    refuses("/* two\nlines */\nn1 ranks=3\n", "FILE:3: unknown word 'ranks'");
    refuses("me@n1 slots=2\n", "~/.ssh/config");
    refuses("^n1\n", "cannot use '^n1'");
    refuses("=8\n", "begin the line with one");
}

static void reads_no_file_that_is_none(void **state) {
    (void)state;
    assert_null(launcher_hosts_text("/nowhere/hosts"));
    assert_int_equal(errno, ENOENT);
    assert_null(launcher_hosts_text("/"));
    assert_int_equal(errno, EISDIR);
}

static void knows_this_host(void **state) {
    (void)state;
    char own[HOST_NAME_MAX + 1] = "", domain[HOST_NAME_MAX + 64];
    gethostname(own, sizeof own - 1);
    snprintf(domain, sizeof domain, "%.*s.example", (int)strcspn(own, "."), own);
    assert_true(launcher_hosts_is_local("localhost") && launcher_hosts_is_local(own));
    assert_true(launcher_hosts_is_local("127.0.0.1") && launcher_hosts_is_local("::1"));
    if (!strchr(own, '.')) assert_true(launcher_hosts_is_local_name(domain));
    assert_false(launcher_hosts_is_local_name("203.0.113.7"));
    assert_false(launcher_hosts_is_local("no-such-host.invalid"));
}

/* What a job's variables say; NULL: not set. */
static int in_job(const char *nodes, const char *tasks, launcher_hosts *out) {
    static const char *const others[] = {"SLURM_NODELIST", "SLURM_NTASKS_PER_NODE",
                                         "SLURM_JOB_CPUS_PER_NODE", "SLURM_CPUS_ON_NODE"};
    for (size_t i = 0; i < 4; i++) unsetenv(others[i]);
    unsetenv("SLURM_JOB_NODELIST");
    unsetenv("SLURM_TASKS_PER_NODE");
    if (nodes) setenv("SLURM_JOB_NODELIST", nodes, 1);
    if (tasks) setenv("SLURM_TASKS_PER_NODE", tasks, 1);
    return launcher_hosts_of_slurm(out);
}

static void job_says(const char *nodes, const char *tasks, const char *want) {
    launcher_hosts hosts;
    char got[4096] = "";
    assert_int_equal(in_job(nodes, tasks, &hosts), 0);
    for (size_t i = 0; i < hosts.n; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s:%d", i ? " " : "",
                 hosts.at[i].name, hosts.at[i].slots);
    launcher_hosts_free(&hosts);
    assert_string_equal(got, want);
}

static void reads_lists_of_slurm(void **state) {
    (void)state;
    job_says("n1", "2", "n1:2");
    job_says("n[1-3,7]", "2(x3),1", "n1:2 n2:2 n3:2 n7:1");
    job_says("n[08-11],login", "4(x5)", "n08:4 n09:4 n10:4 n11:4 login:4");
    job_says("a[1-2]b[0-1]-x,c", "1", "a1b0-x:1 a1b1-x:1 a2b0-x:1 a2b1-x:1 c:1");
    job_says("n[98-101]", "3,2(x3)", "n98:3 n99:2 n100:2 n101:2");
}

static void job_refuses(const char *nodes, const char *tasks, const char *want) {
    launcher_hosts hosts;
    stderr_text_begin();
    const int status = in_job(nodes, tasks, &hosts);
    const char *message = stderr_text_end();
    assert_int_equal(status, PROGRAM_USAGE);
    assert_int_equal(hosts.n, 0);
    if (!strstr(message, want)) fail_msg("no '%s' in: %s", want, message);
}

static void refuses_lists_that_slurm_does_not_write(void **state) {
    (void)state;
    static const char *const lists[] = {
        "n[1-3",         "n]",  "n[1-]", "n[-3]",   "",       "n[3-1]",    "n1,",
        "n[1-99999999]", ",n1", "n[]",   "n[1,,2]", "n[1 2]", "n[1-5000]", "n[99999999999]"};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) job_refuses(lists[i], "1", "--hosts");
    job_refuses("n1", "x", "SLURM_TASKS_PER_NODE=x");
    job_refuses("n[1-3]", "2(x2", "SLURM_TASKS_PER_NODE=2(x2");
    job_refuses("n1", "0", "SLURM_TASKS_PER_NODE=0");
    job_refuses(NULL, "1", "SLURM_JOB_NODELIST");
    job_refuses("n1", NULL, "SLURM_TASKS_PER_NODE");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_mpirun_reads),
        cmocka_unit_test(counts_each_mention),
        cmocka_unit_test(says_what_is_wrong_and_where),
        cmocka_unit_test(reads_no_file_that_is_none),
        cmocka_unit_test(knows_this_host),
        cmocka_unit_test(reads_lists_of_slurm),
        cmocka_unit_test(refuses_lists_that_slurm_does_not_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
