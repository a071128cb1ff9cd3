/* File systems without locks, or with locks that are granted to everybody: a store whose last
 * writer may still run is taken over only on request, and the writer that lost it gets an error. */
#include "support/store_fixture.h"

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "store/lock.h"

enum { REAL, ENOLCK_ALWAYS, GRANTED_TO_ALL } locks;

/* Replaces the C library's function. */
int fcntl(int fd, int command, ...) {
    va_list args;
    va_start(args, command);
    void *argument = va_arg(args, void *);
    va_end(args);
    if (locks != REAL && (command == F_OFD_SETLK || command == F_OFD_GETLK)) {
        if (command == F_OFD_GETLK) ((struct flock *)argument)->l_type = F_UNLCK;
        errno = ENOLCK;
        return locks == GRANTED_TO_ALL ? 0 : -1;
    }
    return (int)syscall(SYS_fcntl, fd, command, argument);
}

/* The preceding check has the same result as the opening, with the same words, and changes
 * nothing. */
static dcp_store *try_open(struct scratch *s, int take_over, int *status, dcp_error *err) {
    dcp_store_options options = {
        .size = sizeof options, .take_over = take_over, .log = keep_line, .log_ctx = s};
    dcp_store *store = NULL;
    dcp_error before = {0};
    int is_there = has(s, ".lock"), asked = dcp_store_check_free(s->dir, &before);
    assert_int_equal(has(s, ".lock"), is_there);
    *err = (dcp_error){0};
    *status = dcp_store_open(s->comm, s->dir, &options, &store, err);
    if (take_over) return store;
    assert_int_equal(asked, *status);
    assert_string_equal(before.message, err->message);
    return store;
}

static void the_second_waits_to_be_told(struct scratch *s) {
    dcp_error err = {0};
    char text[64];
    int status;
    dcp_store *first = try_open(s, 0, &status, &err);
    assert_int_equal(status, DCP_OK);
    assert_non_null(strstr(s->log, "has no locks that exclude others"));
    publish_all(first, 1, 1);
    assert_null(try_open(s, 0, &status, &err));
    assert_int_equal(status, DCP_ERR_BUSY);
    snprintf(text, sizeof text, "process %ld on host", (long)getpid());
    assert_non_null(strstr(err.message, text));
    assert_non_null(strstr(err.message, "take_over"));
    publish_all(first, 2, 2); /* the first one has not lost it */

    dcp_store *second = try_open(s, 1, &status, &err);
    assert_int_equal(status, DCP_OK);
    assert_int_equal(publish(first, 3, "of the first", &err), DCP_ERR_BUSY);
    assert_non_null(strstr(err.message, text));
    publish_all(second, 3, 3);
    dcp_store_close(first);
    publish_all(second, 4, 4);
    dcp_store_close(second);
    dcp_store_close(try_open(s, 0, &status, &err)); /* closed: nobody has it */
    assert_int_equal(status, DCP_OK);
    assert_steps(s, "c1 c2 c3 c4");
}

static void without_locks(void **state) {
    locks = ENOLCK_ALWAYS;
    the_second_waits_to_be_told(*state);
    locks = REAL;
}

static void with_locks_for_all(void **state) {
    locks = GRANTED_TO_ALL;
    the_second_waits_to_be_told(*state);
    locks = REAL;
}

static void write_lock(const struct scratch *s, const char *text) {
    char path[120];
    assert_true(mkdir(s->dir, 0777) == 0 || errno == EEXIST);
    snprintf(path, sizeof path, "%s/.lock", s->dir);
    write_text(path, text);
}

/* An available lock proves that a writer elsewhere has ended; without locks nothing does. */
static void a_writer_on_another_host(void **state) {
#define ELSEWHERE "far.away 17 4711 0123456789abcdef 4026531836 00000000000000ab "
    static const char elsewhere[] = ELSEWHERE "sole held 17\n";
    struct scratch *s = *state;
    dcp_error err = {0};
    int status;
    write_lock(s, elsewhere);
    dcp_store_close(try_open(s, 0, &status, &err));
    assert_int_equal(status, DCP_OK);
    write_lock(s, ELSEWHERE "contested held 17\n");
    dcp_store_close(try_open(s, 0, &status, &err));
    assert_int_equal(status, DCP_OK);

    locks = GRANTED_TO_ALL;
    write_lock(s, ELSEWHERE "lockless held 17\n");
    assert_null(try_open(s, 0, &status, &err));
    assert_int_equal(status, DCP_ERR_BUSY);

    locks = ENOLCK_ALWAYS;
    write_lock(s, elsewhere);
    assert_null(try_open(s, 0, &status, &err));
    assert_int_equal(status, DCP_ERR_BUSY);
    assert_non_null(strstr(err.message, "process 17 on host far.away"));
    dcp_store_close(try_open(s, 1, &status, &err));
    assert_int_equal(status, DCP_OK);
    locks = REAL;
}

/* Locks end with exec, the process does not. */
static void this_process_before_it_called_exec(void **state) {
    struct scratch *s = *state;
    store_writer w;
    char text[STORE_WRITER_TEXT];
    dcp_error err = {0};
    int status;
    store_writer_describe("00000000000000ab", &w);
    store_writer_print(&w, text);
    for (locks = REAL; locks <= GRANTED_TO_ALL; locks++) {
        write_lock(s, text);
        dcp_store_close(try_open(s, 0, &status, &err));
        assert_int_equal(status, DCP_OK);
    }
    locks = REAL;
}

static void a_dead_writer_of_this_host(void **state) {
    struct scratch *s = *state;
    dcp_error err = {0};
    int status, ready[2];
    char byte;
    locks = ENOLCK_ALWAYS;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        try_open(s, 0, &status, &err);
        _exit(write(ready[1], "x", 1) != 1 || status != DCP_OK);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    siginfo_t info; /* dead, but not reaped yet */
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    assert_int_equal(info.si_status, 0);
    dcp_store_close(try_open(s, 0, &status, &err));
    assert_int_equal(status, DCP_OK);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    locks = REAL;
}

/* A pin that nobody would see is refused. */
static void nothing_is_pinned(void **state) {
    struct scratch *s = *state;
    char path[200];
    dcp_pin *pin;
    dcp_error err;
    dcp_store *store = open_store(s, 1, 0);
    publish_all(store, 1, 1);
    snprintf(path, sizeof path, "%s/step-00000001", s->dir);
    for (locks = ENOLCK_ALWAYS; locks <= GRANTED_TO_ALL; locks++) {
        assert_int_equal(dcp_step_pin(path, &pin, &err), DCP_ERR_UNSUPPORTED);
        assert_non_null(strstr(err.message, "has no locks that others see"));
        assert_int_equal(err.system_error, locks == ENOLCK_ALWAYS ? ENOLCK : 0);
    }
    locks = REAL;
    assert_int_equal(dcp_step_pin(path, &pin, &err), DCP_OK);
    dcp_step_unpin(pin);
    dcp_store_close(store);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        scratch_test(without_locks),
        scratch_test(with_locks_for_all),
        scratch_test(a_writer_on_another_host),
        scratch_test(this_process_before_it_called_exec),
        scratch_test(a_dead_writer_of_this_host),
        scratch_test(nothing_is_pinned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
