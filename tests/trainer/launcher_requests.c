/* Requests to a supervisor: each is handed out once and answered; who sends half a line, nonsense
 * or nothing, who never reads and who leaves hold nobody up. Of two supervisors one listens; what a
 * killed one has left is replaced, what is somebody else's is not. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "launcher/control/control.h"
#include "launcher/control/socket.h"

enum { MOST_CLIENTS = 64, RACERS = 8 };

static char dir[64], path[128], too_long[256];

static int make_scratch(void **state) {
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/dcp-control-XXXXXX");
    if (!mkdtemp(dir)) return -1;
    snprintf(path, sizeof path, "%s/.control", dir);
    snprintf(too_long, sizeof too_long, "%s/%0100d", dir, 0);
    if (mkdir(too_long, 0700) != 0 || setenv("XDG_RUNTIME_DIR", dir, 1) != 0) return -1;
    strcat(too_long, "/.control");
    return 0;
}

static int remove_scratch(void **state) {
    (void)state;
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

static launcher_control *open_control(const char *at) {
    launcher_control *control;
    assert_int_equal(launcher_control_open(&control, at, NULL), 0);
    return control;
}

static int connect_to(const char *at) {
    char why[LAUNCHER_SOCKET_WHY] = "";
    const int fd = launcher_socket_connect(at, why);
    if (fd < 0) fail_msg("%s", why);
    return fd;
}

static void send_text(int fd, const char *text) {
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

static int ask(const char *at, const char *line) {
    const int fd = connect_to(at);
    send_text(fd, line);
    return fd;
}

/* What the other end has sent when it closes; freed by the caller. */
static char *read_all(int fd) {
    char *text = calloc(1, 1 << 22);
    size_t got = 0;
    for (ssize_t n; (n = recv(fd, text + got, (1 << 22) - 1 - got, 0)) > 0;) got += (size_t)n;
    close(fd);
    return text;
}

static void assert_answered(int fd, const char *expected) {
    char *text = read_all(fd);
    if (!strstr(text, expected)) fail_msg("'%s', expected '%s'", text, expected);
    free(text);
}

static void assert_next(launcher_control *control, launcher_request_kind what,
                        launcher_request *out) {
    assert_int_equal(launcher_control_next(control, out), 1);
    assert_int_equal(out->what, what);
}

static void assert_no_more(launcher_control *control) {
    launcher_request request;
    assert_int_equal(launcher_control_next(control, &request), 0);
}

static void answer_ok(launcher_control *control, const launcher_request *request) {
    launcher_control_answer(control, request->client, json_pack("{s:b, s:i}", "ok", 1, "step", 7));
}

static int is_ready(const launcher_control *control) {
    struct pollfd polled = {.fd = launcher_control_fd(control), .events = POLLIN};
    return poll(&polled, 1, 0) == 1;
}

static void requests_are_handed_out_once(void **state) {
    (void)state;
    launcher_request request, later;
    launcher_control *control = open_control(path);
    assert_false(is_ready(control));
    assert_no_more(control);
    const int status = ask(path, "{\"ask\":\"status\"}\n");
    const int resize = ask(path, "{\"ask\":\"resize\",\"ranks\":5}\n");
    assert_true(is_ready(control));
    assert_next(control, LAUNCHER_REQUEST_STATUS, &request);
    assert_next(control, LAUNCHER_REQUEST_RESIZE, &later);
    assert_int_equal(later.ranks, 5);
    assert_no_more(control);
    assert_false(is_ready(control));
    answer_ok(control, &later);
    answer_ok(control, &later); /* it has gone */
    answer_ok(control, &request);
    assert_answered(status, "{\"ok\":true,\"step\":7}\n");
    assert_answered(resize, "\"step\":7");
    launcher_control_close(control);
}

static void the_socket_is_for_its_owner_and_goes_at_the_end(void **state) {
    (void)state;
    struct stat st;
    const mode_t before = umask(0);
    launcher_control *control = open_control(path);
    umask(before);
    assert_int_equal(lstat(path, &st), 0);
    assert_true(S_ISSOCK(st.st_mode));
    assert_int_equal(st.st_mode & 0777, 0600);
    launcher_control_close(control);
    assert_int_equal(lstat(path, &st), -1);
}

static void nonsense_is_refused(void **state) {
    (void)state;
    static const char *const lines[] = {
        "\n",
        "status\n",
        "{\"ask\":\"dance\"}\n",
        "{\"ask\":7}\n",
        "[\"ask\"]\n",
        "{\"ask\":\"resize\"}\n",
        "{\"ask\":\"resize\",\"ranks\":0}\n",
        "{\"ask\":\"resize\",\"ranks\":\"4\"}\n",
        "{\"ask\":\"resize\",\"ranks\":99999999999}\n",
        "{\"ask\":\"stop\",\"ask\":\"save\"}\n",
        "\xff\xfe\n",
    };
    launcher_control *control = open_control(path);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        const int fd = ask(path, lines[i]);
        assert_no_more(control);
        assert_answered(fd, "{\"error\":\"");
    }
    char line[3000];
    memset(line, '[', sizeof line - 1);
    line[sizeof line - 1] = '\0';
    const int fd = ask(path, line);
    assert_no_more(control);
    assert_answered(fd, "too long");
    launcher_control_close(control);
}

static void half_lines_hold_nobody_up(void **state) {
    (void)state;
    launcher_request request;
    launcher_control *control = open_control(path);
    const int slow = ask(path, "{\"ask\":\"sa");
    const int gone = ask(path, "{\"ask\":\"st");
    assert_no_more(control);
    close(gone);
    const int quick = ask(path, "{\"ask\":\"stop\"}\n");
    assert_next(control, LAUNCHER_REQUEST_STOP, &request);
    answer_ok(control, &request);
    assert_answered(quick, "\"ok\"");
    assert_no_more(control);
    assert_false(is_ready(control));
    send_text(slow, "ve\"}\nand more");
    assert_next(control, LAUNCHER_REQUEST_SAVE, &request);
    answer_ok(control, &request);
    assert_answered(slow, "\"ok\"");
    launcher_control_close(control);
}

static void silent_clients_make_room(void **state) {
    (void)state;
    launcher_request request;
    launcher_control *control = open_control(path);
    int silent[2 * MOST_CLIENTS];
    for (int i = 0; i < 2 * MOST_CLIENTS; i++) {
        silent[i] = connect_to(path);
        assert_no_more(control);
    }
    const int fd = ask(path, "{\"ask\":\"status\"}\n");
    assert_next(control, LAUNCHER_REQUEST_STATUS, &request);
    answer_ok(control, &request);
    assert_answered(fd, "\"ok\"");
    for (int i = 0; i < 2 * MOST_CLIENTS; i++) close(silent[i]);
    launcher_control_close(control);
}

static void more_requests_than_there_is_room_for(void **state) {
    (void)state;
    launcher_request requests[MOST_CLIENTS];
    launcher_control *control = open_control(path);
    int fds[MOST_CLIENTS];
    for (int i = 0; i < MOST_CLIENTS; i++) {
        fds[i] = ask(path, "{\"ask\":\"save\"}\n");
        assert_next(control, LAUNCHER_REQUEST_SAVE, &requests[i]);
    }
    const int late = ask(path, "{\"ask\":\"save\"}\n");
    assert_no_more(control);
    assert_answered(late, "too many");
    for (int i = 0; i < MOST_CLIENTS; i++) {
        answer_ok(control, &requests[i]);
        assert_answered(fds[i], "\"ok\"");
    }
    launcher_control_close(control);
}

/* An answer that no socket's buffer takes at once. */
static json_t *long_answer(void) {
    static char text[1 << 20];
    memset(text, 'x', sizeof text - 1);
    return json_pack("{s:s}", "ok", text);
}

static void slow_readers_hold_nobody_up(void **state) {
    (void)state;
    launcher_request request;
    launcher_control *control = open_control(path);
    const int slow = ask(path, "{\"ask\":\"status\"}\n"),
              never = ask(path, "{\"ask\":\"status\"}\n");
    for (int i = 0; i < 2; i++) {
        assert_next(control, LAUNCHER_REQUEST_STATUS, &request);
        launcher_control_answer(control, request.client, long_answer());
    }
    const int quick = ask(path, "{\"ask\":\"save\"}\n");
    assert_next(control, LAUNCHER_REQUEST_SAVE, &request);
    answer_ok(control, &request);
    assert_answered(quick, "\"ok\"");
    size_t got = 0;
    char text[65536];
    for (ssize_t n; (n = recv(slow, text, sizeof text, MSG_DONTWAIT)) != 0;) {
        if (n > 0) got += (size_t)n;
        assert_no_more(control);
    }
    assert_int_equal(got, (1 << 20) - 1 + strlen("{\"ok\":\"\"}\n"));
    close(slow);
    launcher_control_close(control);
    close(never);
}

static void who_has_gone_gets_no_answer(void **state) {
    (void)state;
    launcher_request request;
    launcher_control *control = open_control(path);
    const int fd = ask(path, "{\"ask\":\"save\"}\n");
    assert_next(control, LAUNCHER_REQUEST_SAVE, &request);
    close(fd);
    assert_true(is_ready(control));
    assert_no_more(control);
    assert_false(is_ready(control));
    answer_ok(control, &request);
    const int half = ask(path, "{\"ask\":\"save\"}\n");
    shutdown(half, SHUT_WR); /* it still listens */
    assert_next(control, LAUNCHER_REQUEST_SAVE, &request);
    assert_no_more(control);
    assert_false(is_ready(control));
    answer_ok(control, &request);
    assert_answered(half, "\"ok\"");
    launcher_control_close(control);
}

/* A child that runs on has inherited the connection. */
static void answers_end_whoever_inherited_them(void **state) {
    (void)state;
    launcher_request request;
    launcher_control *control = open_control(path);
    const int fd = ask(path, "{\"ask\":\"save\"}\n");
    assert_next(control, LAUNCHER_REQUEST_SAVE, &request);
    const pid_t heir = fork();
    if (heir == 0) {
        close(fd);
        pause();
        _exit(0);
    }
    answer_ok(control, &request);
    assert_answered(fd, "\"ok\"");
    kill(heir, SIGKILL);
    waitpid(heir, NULL, 0);
    launcher_control_close(control);
}

static void the_end_answers_who_waits(void **state) {
    (void)state;
    launcher_request request;
    launcher_control *control = open_control(path);
    const int fd = ask(path, "{\"ask\":\"save\"}\n");
    assert_next(control, LAUNCHER_REQUEST_SAVE, &request);
    launcher_control_close(control);
    assert_answered(fd, "{\"error\":\"the run has ended\"}\n");
}

static void without_a_path_nothing_comes(void **state) {
    (void)state;
    launcher_control *control = open_control(NULL);
    assert_false(is_ready(control));
    assert_no_more(control);
    launcher_control_close(control);
}

static void folders_are_made_and_removed(void **state) {
    (void)state;
    char outer[100], inner[120], kept[160];
    launcher_control *control;
    snprintf(outer, sizeof outer, "%s/outer", dir);
    snprintf(inner, sizeof inner, "%s/inner/", outer);
    snprintf(kept, sizeof kept, "%s/kept", inner);
    assert_int_equal(launcher_control_open(&control, NULL, inner), 0);
    close(connect_to(inner)); /* by the directory's name */
    launcher_control_close(control);
    assert_int_equal(access(outer, F_OK), -1);
    assert_int_equal(launcher_control_open(&control, NULL, inner), 0);
    assert_int_equal(mkdir(kept, 0700), 0);
    launcher_control_close(control);
    assert_int_equal(access(kept, F_OK), 0);
}

static void a_second_supervisor_is_refused(void **state) {
    (void)state;
    char why[LAUNCHER_SOCKET_WHY], expected[64];
    const char *const paths[] = {path, too_long};
    snprintf(expected, sizeof expected, "process %d on ", (int)getpid());
    for (int i = 0; i < 2; i++) {
        launcher_control *control = open_control(paths[i]);
        const pid_t child = fork(); /* locks do not keep a process from itself */
        if (child == 0) {
            launcher_socket other;
            if (launcher_socket_listen(&other, paths[i], why) != LAUNCHER_OCCUPIED) _exit(1);
            _exit(strstr(why, expected) ? 0 : 2);
        }
        int status;
        waitpid(child, &status, 0);
        assert_int_equal(status, 0);
        close(connect_to(paths[i]));
        launcher_control_close(control);
    }
}

static void a_long_path_is_a_file_that_names_the_socket(void **state) {
    (void)state;
    struct stat st;
    launcher_request request;
    launcher_control *control = open_control(too_long);
    assert_int_equal(lstat(too_long, &st), 0);
    assert_true(S_ISREG(st.st_mode));
    assert_int_equal(st.st_mode & 0777, 0600);
    const int fd = ask(too_long, "{\"ask\":\"stop\"}\n");
    assert_next(control, LAUNCHER_REQUEST_STOP, &request);
    answer_ok(control, &request);
    assert_answered(fd, "\"ok\"");
    launcher_control_close(control);
    assert_int_equal(lstat(too_long, &st), -1);
    assert_int_equal(system("test -z \"$(find $XDG_RUNTIME_DIR -name 'dcp-run.*.control')\""), 0);
}

/* A supervisor in a process of its own, killed; a child of it lives on and has inherited all. Ends
 * by a byte to *heir. */
static void leave_behind(const char *at, int *heir) {
    int ready[2], end[2];
    char byte = 0;
    assert_int_equal(pipe(ready) | pipe(end), 0);
    const pid_t supervisor = fork();
    if (supervisor == 0) {
        launcher_control *control;
        if (launcher_control_open(&control, at, NULL) != 0) _exit(1);
        close(end[1]);
        if (fork() == 0) {
            read(end[0], &byte, 1);
            _exit(0);
        }
        write(ready[1], "x", 1);
        pause();
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    kill(supervisor, SIGKILL);
    siginfo_t ended;
    waitid(P_PID, (id_t)supervisor, &ended, WEXITED | WNOWAIT); /* nobody need have waited for it */
    close(ready[0]);
    close(ready[1]);
    close(end[0]);
    *heir = end[1];
}

static void what_a_killed_one_left_is_replaced(void **state) {
    (void)state;
    const char *const paths[] = {path, too_long};
    for (int i = 0; i < 2; i++) {
        char why[LAUNCHER_SOCKET_WHY] = "";
        int heir;
        leave_behind(paths[i], &heir);
        assert_int_equal(launcher_socket_connect(paths[i], why), -1);
        assert_non_null(strstr(why, "no dcp-run is at"));
        launcher_control *control = open_control(paths[i]);
        close(connect_to(paths[i]));
        launcher_control_close(control);
        assert_int_equal(system("test -z \"$(find $XDG_RUNTIME_DIR -name 'dcp-run.*.control')\""),
                         0);
        close(heir);
    }
}

/* Racers open at the same moment where a killed supervisor was: one listens. */
static void race(const char *at) {
    int go[2], won[2], hold[2], heir;
    char byte;
    leave_behind(at, &heir);
    assert_int_equal(pipe(go) | pipe(won) | pipe(hold), 0);
    for (int i = 0; i < RACERS; i++) {
        if (fork() != 0) continue;
        char why[LAUNCHER_SOCKET_WHY];
        launcher_socket socket;
        close(go[1]);
        close(hold[1]);
        read(go[0], &byte, 1);
        const launcher_listening result = launcher_socket_listen(&socket, at, why);
        write(won[1],
              result == LAUNCHER_LISTENS    ? "1"
              : result == LAUNCHER_OCCUPIED ? "0"
                                            : "?",
              1);
        read(hold[0], &byte, 1);
        if (result == LAUNCHER_LISTENS) launcher_socket_close(&socket);
        _exit(0);
    }
    close(go[1]);
    int winners = 0;
    for (int i = 0; i < RACERS; i++) {
        assert_int_equal(read(won[0], &byte, 1), 1);
        assert_true(byte == '0' || byte == '1');
        winners += byte == '1';
    }
    assert_int_equal(winners, 1);
    close(connect_to(at));
    close(hold[1]);
    while (wait(NULL) > 0) continue;
    assert_int_equal(access(at, F_OK), -1);
    close(go[0]);
    close(won[0]);
    close(won[1]);
    close(hold[0]);
    close(heir);
}

static void of_many_at_once_one_listens(void **state) {
    (void)state;
    for (int i = 0; i < 20; i++) {
        race(path);
        race(too_long);
    }
}

/* Connects each time that the path appears, and tells how that went, and when the path is gone. */
static void be_quick(int told) {
    for (;;) {
        char why[LAUNCHER_SOCKET_WHY];
        while (access(path, F_OK) != 0) continue;
        const int fd = launcher_socket_connect(path, why);
        if (write(told, fd < 0 ? "0" : "1", 1) != 1) _exit(1);
        while (access(path, F_OK) == 0) continue;
        if (fd >= 0) close(fd);
        if (write(told, "-", 1) != 1) _exit(1);
    }
}

static void who_finds_the_path_is_answered(void **state) {
    (void)state;
    int told[2];
    char byte;
    assert_int_equal(pipe(told), 0);
    const pid_t client = fork();
    if (client == 0) be_quick(told[1]);
    int answered = 0, n = 0;
    for (; n < 300; n++) {
        launcher_control *control = open_control(path);
        if (read(told[0], &byte, 1) == 1) answered += byte == '1';
        launcher_control_close(control);
        if (read(told[0], &byte, 1) != 1) break;
    }
    kill(client, SIGKILL);
    waitpid(client, NULL, 0);
    assert_int_equal(answered, n);
    close(told[0]);
    close(told[1]);
}

static void write_file(const char *at, const char *text) {
    FILE *file = fopen(at, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void what_is_no_socket_stays(void **state) {
    (void)state;
    char why[LAUNCHER_SOCKET_WHY];
    launcher_socket socket;
    const char *const paths[] = {path, too_long};
    for (int i = 0; i < 2; i++) {
        write_file(paths[i], "my notes\n");
        assert_int_equal(launcher_socket_listen(&socket, paths[i], why), LAUNCHER_OCCUPIED);
        assert_non_null(strstr(why, "is not a control socket"));
        assert_int_equal(launcher_socket_connect(paths[i], why), -1);
        assert_non_null(strstr(why, "is not a control socket"));
        unlink(paths[i]);
        assert_int_equal(symlink("/dev/null", paths[i]), 0);
        assert_int_equal(launcher_socket_listen(&socket, paths[i], why), LAUNCHER_OCCUPIED);
        unlink(paths[i]);
    }
}

/* The lock tells whether the supervisor of another host lives. */
static void another_hosts_supervisor_is_named(void **state) {
    (void)state;
    static const char there[] =
        "{\"host\": \"far-away\", \"pid\": 77, \"socket\": \"/tmp/dcp-run.0.control\"}\n";
    char why[LAUNCHER_SOCKET_WHY], byte;
    launcher_socket socket;
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    write_file(path, there);
    const pid_t holder = fork();
    if (holder == 0) {
        struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        const int fd = open(path, O_RDWR);
        fcntl(fd, F_SETLK, &whole);
        write(ready[1], "x", 1);
        pause();
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(launcher_socket_listen(&socket, path, why), LAUNCHER_OCCUPIED);
    assert_non_null(strstr(why, "process 77 on far-away"));
    assert_int_equal(launcher_socket_connect(path, why), -1);
    assert_non_null(strstr(why, "far-away: run 'dcp-run ctl' there"));
    kill(holder, SIGKILL);
    waitpid(holder, NULL, 0);
    assert_int_equal(launcher_socket_listen(&socket, path, why), LAUNCHER_LISTENS);
    launcher_socket_close(&socket);
    close(ready[0]);
    close(ready[1]);
}

static void another_ones_socket_is_not_removed(void **state) {
    (void)state;
    launcher_control *control = open_control(path);
    assert_int_equal(unlink(path), 0);
    write_file(path, "");
    launcher_control_close(control);
    assert_int_equal(access(path, F_OK), 0);
    unlink(path);
}

/* `dcp-run ctl`, its output in a file; this process answers what it asks. */
static int run_ctl(const char *word, const char *number, launcher_control *control, json_t *answer,
                   char output[256]) {
    char out[100];
    snprintf(out, sizeof out, "%s/out", dir);
    const pid_t child = fork();
    if (child == 0) {
        char *args[] = {"dcp-run", "ctl", path, (char *)word, (char *)number, NULL};
        if (!freopen(out, "w", stdout) || dup2(fileno(stdout), STDERR_FILENO) < 0) _exit(99);
        const int status = launcher_control_main(number ? 5 : 4, args);
        fflush(stdout);
        _exit(status);
    }
    if (answer) {
        launcher_request request;
        while (!launcher_control_next(control, &request))
            poll(&(struct pollfd){.fd = launcher_control_fd(control), .events = POLLIN}, 1, -1);
        launcher_control_answer(control, request.client, answer);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    FILE *file = fopen(out, "r");
    output[fread(output, 1, 255, file)] = '\0';
    fclose(file);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void ctl_asks_and_prints(void **state) {
    (void)state;
    char said[256];
    launcher_control *control = open_control(path);
    assert_int_equal(
        run_ctl("save", NULL, control, json_pack("{s:b, s:i}", "ok", 1, "step", 12), said), 0);
    assert_string_equal(said, "{\n  \"step\": 12\n}\n");
    assert_int_equal(
        run_ctl("resize", "9", control, json_pack("{s:s}", "error", "no room for 9"), said), 3);
    assert_non_null(strstr(said, ": no room for 9\n"));
    assert_int_equal(run_ctl("resize", "0", control, NULL, said), 2);
    assert_int_equal(run_ctl("resize", NULL, control, NULL, said), 2);
    assert_int_equal(run_ctl("save", "9", control, NULL, said), 2);
    assert_int_equal(run_ctl("dance", NULL, control, NULL, said), 2);
    assert_no_more(control);
    launcher_control_close(control);
    assert_int_equal(run_ctl("status", NULL, NULL, NULL, said), 2);
    assert_non_null(strstr(said, "no dcp-run is at "));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_are_handed_out_once),
        cmocka_unit_test(the_socket_is_for_its_owner_and_goes_at_the_end),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(half_lines_hold_nobody_up),
        cmocka_unit_test(silent_clients_make_room),
        cmocka_unit_test(more_requests_than_there_is_room_for),
        cmocka_unit_test(slow_readers_hold_nobody_up),
        cmocka_unit_test(who_has_gone_gets_no_answer),
        cmocka_unit_test(answers_end_whoever_inherited_them),
        cmocka_unit_test(the_end_answers_who_waits),
        cmocka_unit_test(without_a_path_nothing_comes),
        cmocka_unit_test(folders_are_made_and_removed),
        cmocka_unit_test(a_second_supervisor_is_refused),
        cmocka_unit_test(a_long_path_is_a_file_that_names_the_socket),
        cmocka_unit_test(what_a_killed_one_left_is_replaced),
        cmocka_unit_test(of_many_at_once_one_listens),
        cmocka_unit_test(who_finds_the_path_is_answered),
        cmocka_unit_test(what_is_no_socket_stays),
        cmocka_unit_test(another_hosts_supervisor_is_named),
        cmocka_unit_test(another_ones_socket_is_not_removed),
        cmocka_unit_test(ctl_asks_and_prints),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
