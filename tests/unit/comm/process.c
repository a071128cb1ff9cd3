/* Whether a process has ended: it runs, has exited but was not waited for, no longer exists, or
 * another process has its number; and processes that cannot be looked up. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "comm/process.h"

/* Starts a child that identifies itself, and ends when the pipe is closed. */
static pid_t start_child(int pipe_ends[2], comm_process *out) {
    comm_process *told =
        mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int ready[2];
    char byte;
    assert_true(told != MAP_FAILED);
    assert_int_equal(pipe(pipe_ends) | pipe(ready), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        close(pipe_ends[1]);
        comm_process_find(told);
        close(ready[1]);
        _exit(read(pipe_ends[0], &byte, 1) != 0);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 0);
    close(ready[0]);
    close(pipe_ends[0]);
    *out = *told;
    munmap(told, sizeof *told);
    assert_int_equal(out->pid, pid);
    return pid;
}

static void a_child_ends(void **state) {
    (void)state;
    comm_process own, child;
    int ends[2];
    siginfo_t info;
    comm_process_find(&own);
    assert_false(comm_process_has_ended(&own, &own));
    const pid_t pid = start_child(ends, &child);
    assert_false(comm_process_has_ended(&own, &child));
    close(ends[1]);
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0); /* remains a zombie */
    assert_true(comm_process_has_ended(&own, &child));
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_true(comm_process_has_ended(&own, &child));
}

static void another_has_its_number(void **state) {
    (void)state;
    comm_process own, earlier;
    comm_process_find(&own);
    earlier = own;
    earlier.start--;
    assert_true(comm_process_has_ended(&own, &earlier));
}

static void who_cannot_be_looked_up_is_not_said_to_have_ended(void **state) {
    (void)state;
    const comm_process nobody = {0};
    comm_process own, elsewhere, hidden;
    comm_process_find(&own);
    elsewhere = hidden = own;
    elsewhere.kernel++;
    hidden.name_space++;
    elsewhere.start = hidden.start = 1;
    assert_false(comm_process_has_ended(&own, &elsewhere));
    assert_false(comm_process_has_ended(&own, &hidden));
    assert_false(comm_process_has_ended(&own, &nobody));
    assert_false(comm_process_has_ended(&nobody, &own));
}

/* Puts later children into another time namespace. Returns 0, or -1 if that is not allowed. */
static int shift_time(void) {
    if (unshare(CLONE_NEWTIME)) return -1;
    FILE *offsets = fopen("/proc/self/timens_offsets", "w");
    if (!offsets) return -1;
    fputs("boottime 1000 0", offsets);
    return fclose(offsets);
}

static void one_in_a_shifted_time_is_not_said_to_have_ended(void **state) {
    (void)state;
    comm_process own, child;
    int ends[2];
    if (shift_time()) skip();
    comm_process_find(&own);
    const pid_t pid = start_child(ends, &child);
    assert_false(comm_process_has_ended(&own, &child));
    close(ends[1]);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_ends),
        cmocka_unit_test(another_has_its_number),
        cmocka_unit_test(who_cannot_be_looked_up_is_not_said_to_have_ended),
        cmocka_unit_test(one_in_a_shifted_time_is_not_said_to_have_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
