/* Free memory, as reported by /proc and by control groups of both versions, and limits of the
 * process. */
#include "io/buffers.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/core_fixture.h"

#define KIB ((uint64_t)1 << 10)

static char root[] = "/tmp/dcp-available-XXXXXX";

/* Writes a file below the root, and makes its folders. */
static void put(const char *name, const char *text) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", root, name);
    for (char *c = path + strlen(root) + 1; (c = strchr(c, '/')); *c++ = '/') {
        *c = 0;
        mkdir(path, 0700);
    }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static uint64_t find(void) {
    char proc[PATH_MAX], groups[PATH_MAX];
    snprintf(proc, sizeof proc, "%s/proc", root);
    snprintf(groups, sizeof groups, "%s/cgroup", root);
    return io_available_memory_in(proc, groups);
}

static void the_least_counts(void **state) {
    (void)state;
    assert_int_equal(find(), UINT64_MAX); /* nothing is known */
    put("proc/meminfo", "MemTotal:  90000 kB\nMemAvailable:  80000 kB\n");
    assert_int_equal(find(), 80000 * KIB);
    /* version 2: an outer group has the limit, the own one says max; files' cache is free */
    put("proc/self/cgroup", "0::/job/step\n");
    put("cgroup/job/step/memory.max", "max\n");
    put("cgroup/job/step/memory.current", "1000\n");
    assert_int_equal(find(), 80000 * KIB);
    put("cgroup/job/memory.max", "5000000\n");
    put("cgroup/job/memory.current", "3000000\n");
    put("cgroup/job/memory.stat", "anon 5\ninactive_file 1000000\n");
    assert_int_equal(find(), 3000000);
    put("cgroup/job/memory.high", "4000000\n");
    assert_int_equal(find(), 2000000);
    put("cgroup/job/memory.current", "6000000\n"); /* beyond the limit */
    assert_int_equal(find(), 0);
    /* version 1: the path is the host's, the container sees its own group as the topmost */
    put("proc/self/cgroup", "5:cpu,memory:/docker/abc\n3:devices:/x\n0::/\n");
    put("cgroup/memory/memory.limit_in_bytes", "7000000\n");
    put("cgroup/memory/memory.usage_in_bytes", "1000000\n");
    put("cgroup/memory/memory.stat", "total_inactive_file 500000\n");
    assert_int_equal(find(), 6500000);
}

/* Runs in a process of its own, which the limit would otherwise continue to restrict. */
static void limits_of_the_process(void **state) {
#ifdef __SANITIZE_ADDRESS__ /* has mapped more than any limit allows */
    skip();
#endif
    (void)state;
    int status;
    const pid_t child = fork();
    if (!child) {
        struct rlimit limit = {(rlim_t)1 << 40, (rlim_t)1 << 40};
        if (setrlimit(RLIMIT_AS, &limit)) _exit(2);
        const uint64_t before = io_available_memory();
        limit.rlim_cur = 1 << 20; /* less than is mapped already */
        if (setrlimit(RLIMIT_AS, &limit)) _exit(3);
        _exit(before > 0 && before < (uint64_t)1 << 40 && io_available_memory() == 0 ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(void) {
    char command[PATH_MAX];
    assert_non_null(mkdtemp(root));
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_least_counts),
                                       cmocka_unit_test(limits_of_the_process)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command) ? 1 : failed;
}
