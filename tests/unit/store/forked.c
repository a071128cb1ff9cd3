/* Processes that a writer forks keep neither the lock nor the store. */
#include "support/store_fixture.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "tiers/tier_list.h"

enum { FORK, PAST_FORK };

/* Makes a copy of the calling process; with PAST_FORK the C library does not notice. */
static pid_t multiply(int how) {
    return how == FORK ? fork() : (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

/* Starts a child that does nothing until the pipe's other end is closed. */
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

/* The writer dies; a process that it had started continues, and holds this test's pipe. */
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
        _exit(refused && strstr(err.message, "this process was forked") ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    publish_all(store, 2, 2);
    dcp_store *second = NULL;
    assert_int_equal(dcp_store_open(s->comm, s->dir, NULL, &second, NULL), DCP_ERR_BUSY);
    dcp_store_close(store);
    assert_steps(s, "c1 c2");
}

static int no_threads;

/* Replaces the C library's function. */
int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *ctx) {
    static int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (no_threads) return EAGAIN;
    *(void **)&create = dlsym(RTLD_NEXT, "pthread_create");
    return create(thread, attr, run, ctx);
}

/* A save that reports when it has begun, and continues when `go_on` is closed at the other end. */
typedef struct watched_save {
    pid_t parent;
    int begun[2], go_on[2];
} watched_save;

static void hold_save(void *ctx, uint64_t done, uint64_t total) {
    const watched_save *w = ctx;
    char byte = 'x';
    (void)done, (void)total;
    (void)!write(w->begun[1], &byte, 1);
    (void)!read(w->go_on[0], &byte, 1);
}

static void watch_phase(void *ctx, dcp_phase phase, double begin, double end) {
    const watched_save *w = ctx;
    (void)phase, (void)begin, (void)end;
    if (getpid() != w->parent) _exit(8);
}

enum { CLOSE_STORE, CLOSE_ALL, WAIT };

/* The status of a child that closes the store or the list of stores, or waits for the save. */
static int status_of_child(dcp_tiers *tiers, int what) {
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        dcp_error err = {0};
        alarm(30); /* rather than hang */
        if (what == WAIT) {
            dcp_tiers_fence(tiers);
            const int refused =
                dcp_tiers_is_done(tiers) == 1 && dcp_tiers_wait(tiers, NULL, &err) == DCP_ERR_STATE;
            _exit(!refused || !strstr(err.message, "this process was forked"));
        }
        if (what == CLOSE_ALL)
            dcp_tiers_close(tiers);
        else
            dcp_store_close(tiers->list[0].store);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

/* The save is running in a thread, or will be done by a later wait. */
static void the_parents_save_is_not_the_childs(void **state) {
    struct scratch *s = *state;
    static double values[1000];
    char byte;
    const dcp_tensor tensor = {.path = "/model/a", .dtype = DCP_F64, .ndim = 1, .shape = {1000}};
    const dcp_box whole = {{0}, {1000}};
    const dcp_tier given = {.size = sizeof given, .path = s->dir, .every = 1};
    dcp_state *held = NULL;
    dcp_tiers *tiers = NULL;
    assert_int_equal(dcp_state_create(&held, NULL), DCP_OK);
    assert_int_equal(dcp_state_add(held, &tensor, &whole, values, NULL), DCP_OK);
    assert_int_equal(dcp_tiers_open(s->comm, &given, 1, NULL, &tiers, NULL), DCP_OK);
    for (int later = 0; later <= 1; later++) {
        watched_save w = {.parent = getpid()};
        dcp_save_options options = {
            .size = sizeof options, .on_phase = watch_phase, .phase_ctx = &w, .progress_ctx = &w};
        options.on_progress = later ? NULL : hold_save;
        assert_int_equal(pipe(w.begun) | pipe(w.go_on), 0);
        no_threads = later;
        int started = dcp_tiers_save_async(tiers, 1 + (uint64_t)later, held, NULL, &options, NULL);
        no_threads = 0;
        assert_int_equal(started, DCP_OK);
        if (!later) assert_int_equal(read(w.begun[0], &byte, 1), 1);
        assert_int_equal(dcp_tiers_is_done(tiers), later ? DCP_ERR_STATE : 0);
        const int of_store = status_of_child(tiers, CLOSE_STORE);
        const int of_all = status_of_child(tiers, CLOSE_ALL),
                  of_wait = status_of_child(tiers, WAIT);
        close(w.go_on[1]);
        assert_int_equal(of_store, 0);
        assert_int_equal(of_all, 0);
        assert_int_equal(of_wait, 0);
        assert_int_equal(dcp_tiers_wait(tiers, NULL, NULL), DCP_OK);
        close(w.begun[0]);
        close(w.begun[1]);
        close(w.go_on[0]);
    }
    dcp_tiers_close(tiers);
    dcp_state_destroy(held);
    assert_steps(s, "c1 c2");
}

/* Opens the store, reports that, and waits. Returns 0 on success. */
static int write_till_told(struct scratch *s, int tell, int wait) {
    char byte = 'x';
    open_store(s, 0, 0);
    return write(tell, &byte, 1) != 1 || read(wait, &byte, 1) != 0;
}

/* In a PID namespace of its own, whose /proc is that of another namespace: processes have other
 * numbers there, and the writer's number is another process's. 77: not allowed. */
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
        scratch_test(the_parents_save_is_not_the_childs),
        scratch_test(anothers_proc_tells_of_no_death),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
