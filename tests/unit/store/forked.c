/* Processes that a writer forks keep neither the lock nor the store. */
#include "support/store_fixture.h"

#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { FORK, PAST_FORK };

/* A process like the one that calls; past the C library, nobody learns of it there. */
static pid_t multiply(int how) {
    return how == FORK ? fork() : (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

/* A child that does nothing till the pipe's other end is closed. */
static pid_t start_idler(int how, int end[2]) {
    char byte;
    assert_int_equal(pipe(end), 0);
    pid_t pid = multiply(how);
    if (pid) {
        close(end[0]);
        return pid;
    }
    close(end[1]);
    while (read(end[0], &byte, 1) > 0) continue;
    _exit(0);
}

static void a_closed_store_is_free(void **state) {
    struct scratch *s = *state;
    for (int how = FORK; how <= PAST_FORK; how++) {
        int end[2], status;
        dcp_store *store = open_store(s, 0, 0);
        pid_t idler = start_idler(how, end);
        dcp_store_close(store);
        dcp_store_close(open_store(s, 0, 0));
        close(end[1]);
        assert_int_equal(waitpid(idler, &status, 0), idler);
    }
}

/* The writer dies; a process that it had started lives on, and holds this test's pipe. */
static void a_dead_writers_store_is_free(void **state) {
    struct scratch *s = *state;
    for (int how = FORK; how <= PAST_FORK; how++) {
        int end[2], status;
        assert_int_equal(pipe(end), 0);
        pid_t writer = fork();
        if (writer == 0) {
            char byte;
            close(end[1]);
            open_store(s, 0, 0);
            if (multiply(how) == 0) {
                while (read(end[0], &byte, 1) > 0) continue;
                _exit(0);
            }
            _exit(0);
        }
        assert_int_equal(waitpid(writer, &status, 0), writer);
        assert_int_equal(status, 0);
        dcp_store *store = open_store(s, 0, 0), *second = NULL;
        dcp_error err = {0};
        publish_all(store, (uint64_t)how, (uint64_t)how);
        assert_int_equal(dcp_store_open(s->comm, s->dir, NULL, &second, &err), DCP_ERR_BUSY);
        dcp_store_close(store);
        close(end[0]);
        close(end[1]);
    }
    assert_steps(s, "c0 c1");
}

static int has_lock_open(void) {
    char path[32], target[PATH_MAX];
    for (int fd = 0; fd < 256; fd++) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        const ssize_t n = readlink(path, target, sizeof target);
        if (n > 6 && memcmp(target + n - 6, "/.lock", 6) == 0) return 1;
    }
    return 0;
}

static void the_parents_store_is_not_the_childs(void **state) {
    struct scratch *s = *state;
    int status;
    dcp_store *store = open_store(s, 0, 0);
    publish_all(store, 1, 1);
    assert_true(has_lock_open());
    pid_t pid = fork();
    if (pid == 0) {
        dcp_error err = {0};
        char tmp[PATH_MAX];
        if (has_lock_open()) _exit(2);
        int refused = store_begin(store, 2, tmp, &err) == DCP_ERR_STATE;
        dcp_store_close(store);
        _exit(refused && strstr(err.message, "is a fork") ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    publish_all(store, 2, 2);
    dcp_store *second = NULL;
    assert_int_equal(dcp_store_open(s->comm, s->dir, NULL, &second, NULL), DCP_ERR_BUSY);
    dcp_store_close(store);
    assert_steps(s, "c1 c2");
}

/* Opens the store, tells so, and waits; 0 where all went well. */
static int write_till_told(struct scratch *s, int tell, int wait) {
    char byte = 'x';
    open_store(s, 0, 0);
    return write(tell, &byte, 1) != 1 || read(wait, &byte, 1) != 0;
}

/* In a PID namespace of their own, whose /proc is that of another one: it numbers processes
 * otherwise, and the writer's number there is that of another process. 77: not allowed. */
static int two_writers_in_a_namespace(struct scratch *s) {
    int ready[2], end[2], writer_status = 1, status;
    char byte;
    dcp_store *store = NULL;
    if (pipe(ready) || pipe(end)) return 1;
    if (unshare(CLONE_NEWPID)) return 77;
    pid_t writer = fork();
    if (writer == 0) {
        close(end[1]);
        _exit(write_till_told(s, ready[1], end[0]));
    }
    if (read(ready[0], &byte, 1) != 1) return 1;
    pid_t second = fork();
    if (second == 0) _exit(dcp_store_open(s->comm, s->dir, NULL, &store, NULL) != DCP_ERR_BUSY);
    waitpid(second, &status, 0);
    close(end[1]);
    waitpid(writer, &writer_status, 0);
    return status || writer_status;
}

static void anothers_proc_tells_of_no_death(void **state) {
    int status;
    pid_t pid = fork();
    if (pid == 0) _exit(two_writers_in_a_namespace(*state));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        scratch_test(a_closed_store_is_free),
        scratch_test(a_dead_writers_store_is_free),
        scratch_test(the_parents_store_is_not_the_childs),
        scratch_test(anothers_proc_tells_of_no_death),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
