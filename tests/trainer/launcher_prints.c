/* dcp-run --logs: each rank's lines in its own file, and all of them on the console. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <poll.h>
#include <regex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/family.h"
#include "launcher/logs.h"
#include "programs/program.h"
#include "support/folder_fixture.h"
#include "support/stderr_text.h"

/* Tags. */

static const char stream[] = "[1,0]<stdout>:abc[1,1]<stderr>:x[1,0]<stdout>:def\n"
                             "mpirun says [this\n"
                             "[1,2]<stdout>:[1,2] [1,9]<stdout>:is [[1,2]<stderr>:\n"
                             "[1,1]<stddiag>:y\n"
                             "[12345678901,0]<stdout>:no tag\n"
                             "[1,1]<std";
static const char *const parts[] = {"abcdef\n", "xy\n", "[1,2] [1,9]<stdout>:is [\n",
                                    "mpirun says [this\n[12345678901,0]<stdout>:no tag\n[1,1]<std"};

typedef struct texts {
    char of[4][1024]; /* of ranks 0 to 2, and of mpirun */
} texts;

static void collect(void *ctx, int rank, const char *text, size_t n) {
    texts *t = ctx;
    assert_true(rank >= -1 && rank < 3);
    strncat(t->of[rank < 0 ? 3 : rank], text, n);
}

/* However the stream is cut in three. */
static void takes_tags_apart(void **state) {
    (void)state;
    const size_t n = sizeof stream - 1;
    for (size_t i = 0; i <= n; i++) {
        for (size_t k = i; k <= n; k++) {
            texts t = {0};
            launcher_tagged tagged = {.tag_end = "", .ranks = 3, .rank = -1};
            launcher_tagged_split(&tagged, stream, i, collect, &t);
            launcher_tagged_split(&tagged, stream + i, k - i, collect, &t);
            launcher_tagged_split(&tagged, stream + k, n - k, collect, &t);
            launcher_tagged_end(&tagged, collect, &t);
            for (int r = 0; r < 4; r++)
                if (strcmp(t.of[r], parts[r]) != 0) assert_string_equal(t.of[r], parts[r]);
        }
    }
}

/* Open MPI 5's have a space behind them, which is none of the rank's. */
static void takes_the_end_of_tags(void **state) {
    (void)state;
    static const char with_spaces[] = "[1,0]<stdout>: abc\n[1,1]<stderr>:  x\n[1,0]<stdout>:none\n";
    for (size_t i = 0; i < sizeof with_spaces; i++) {
        texts t = {0};
        launcher_tagged tagged = {.tag_end = " ", .ranks = 3, .rank = -1};
        launcher_tagged_split(&tagged, with_spaces, i, collect, &t);
        launcher_tagged_split(&tagged, with_spaces + i, sizeof with_spaces - 1 - i, collect, &t);
        launcher_tagged_end(&tagged, collect, &t);
        assert_string_equal(t.of[0], "abc\n");
        assert_string_equal(t.of[1], " x\n");
        assert_string_equal(t.of[3], "[1,0]<stdout>:none\n");
    }
}

/* Files and console. */

typedef struct console {
    int kept[2], reader[2]; /* our own stdout and stderr; -1: not replaced */
} console;

/* stdout and stderr become pipes that the test reads. */
static void begin_console(console *c) {
    fflush(NULL);
    for (int i = 0; i < 2; i++) {
        int ends[2];
        assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
        c->kept[i] = fcntl(i + 1, F_DUPFD_CLOEXEC, 3);
        assert_int_equal(dup2(ends[1], i + 1), i + 1);
        close(ends[1]);
        c->reader[i] = ends[0];
    }
}

/* Puts them back; `text` gets what the console shows, of both. */
static void end_console(console *c, char *text, size_t size) {
    fflush(NULL);
    size_t n = 0;
    for (int i = 0; i < 2; i++) {
        dup2(c->kept[i], i + 1);
        close(c->kept[i]);
        for (ssize_t got;
             c->reader[i] >= 0 && (got = read(c->reader[i], text + n, size - 1 - n)) > 0;)
            n += (size_t)got;
        if (c->reader[i] >= 0) close(c->reader[i]);
    }
    text[n] = '\0';
}

static char *file_text(const char *name) {
    static char text[1 << 16];
    FILE *file = fopen(in_folder(name), "r");
    if (!file) return NULL;
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    return text;
}

static void matches(const char *text, const char *pattern) {
    regex_t compiled;
    assert_int_equal(regcomp(&compiled, pattern, REG_EXTENDED | REG_NOSUB), 0);
    if (!text || regexec(&compiled, text, 0, NULL, 0) != 0) fail_msg("no %s in: %s", pattern, text);
    regfree(&compiled);
}

#define TIME "[0-2][0-9]:[0-5][0-9]:[0-6][0-9]\\.[0-9]{3} "
#define DATED "20[0-9]{2}-[01][0-9]-[0-3][0-9] " TIME

static launcher_output *open_output(const char *dir, int start, int ranks) {
    launcher_output *out;
    assert_int_equal(launcher_output_open(&out, in_folder(dir), start, ranks, ""), 0);
    return out;
}

/* Takes until both pipes have ended. */
static void take_all(launcher_output *out) {
    struct pollfd due = {.fd = launcher_output_fd(out), .events = POLLIN};
    while (launcher_output_forward(out)) poll(&due, 1, 100);
}

static void say(const launcher_output *out, int to, const char *text) {
    const size_t n = strlen(text);
    assert_int_equal(write(launcher_output_writer(out, to), text, n), n);
}

static void lines_go_to_file_and_console(void **state) {
    (void)state;
    char shown[4096];
    console c;
    begin_console(&c);
    launcher_output *out = open_output("two", 3, 2);
    say(out, 1, "[1,0]<stdout>:first\n[1,1]<stdout>:half");
    say(out, 2, "[1,0]<stderr>:oh\nmpirun has a word\n");
    launcher_output_forward(out);
    launcher_output_stacks(out, "rank 1: main()\n");
    say(out, 1, "[1,1]<stdout>: whole\n[1,0]<stdout>:no end [1,");
    launcher_output_close(out);
    out = open_output("two", 3, 2); /* another run in the same folder */
    say(out, 1, "[1,0]<stdout>:again\n");
    launcher_output_close(out);
    launcher_output_stacks(NULL, "nowhere else\n");
    end_console(&c, shown, sizeof shown);
    matches(shown, "^" TIME "rank 0: first\n" TIME "rank 1: half whole\n" TIME
                   "rank 0: no end \\[1,\n" TIME "rank 0: again\n"
                   "(.*\n)*" TIME "rank 0: oh\n" TIME "mpirun: mpirun has a word\n");
    matches(shown, "rank 1: main\\(\\)\nnowhere else\n");
    matches(file_text("two/start-3/rank-0.log"),
            "^" DATED "first\n" DATED "oh\n" DATED "no end \\[1,\n" DATED "again\n$");
    matches(file_text("two/start-3/rank-1.log"), "^" DATED "half whole\n$");
    matches(file_text("two/start-3/mpirun.log"), "^" DATED "mpirun has a word\n$");
    matches(file_text("two/start-3/stacks.log"), "^rank 1: main\\(\\)\n$");
}

/* Starts three real ranks, with dcp-run's options of that mpirun; the output's pipes are theirs. */
static pid_t start_ranks(const launcher_family *family, launcher_output *out, const char *script) {
    char words[256];
    snprintf(words, sizeof words, "%s %s %s", family->always, family->one_host, family->tag);
    if (family->quiet) setenv(family->quiet, "1", 1);
    const pid_t pid = fork();
    if (pid == 0) {
        dup2(launcher_output_writer(out, 1), 1);
        dup2(launcher_output_writer(out, 2), 2);
        dup2(open("/dev/null", O_RDONLY), 0);
        execlp("sh", "sh", "-fc", "exec mpirun $0 -n 3 sh -c \"$1\"", words, script, NULL);
        _exit(127);
    }
    launcher_output_started(out);
    return pid;
}

static void reads_what_mpirun_writes(void **state) {
    (void)state;
    char shown[8192], script[256];
    int status;
    console c;
    const launcher_family *family;
    assert_int_equal(launcher_family_find(&family), 0);
    begin_console(&c);
    launcher_output *out;
    assert_int_equal(launcher_output_open(&out, in_folder("real"), 1, 3, family->tag_end), 0);
    snprintf(script, sizeof script,
             "printf 'I am '; echo problem >&2; echo \"$%s\"; echo '[1,0]<stdout'; printf 'last'",
             family->rank_variables->rank);
    const pid_t pid = start_ranks(family, out, script);
    take_all(out);
    waitpid(pid, &status, 0);
    launcher_output_close(out);
    end_console(&c, shown, sizeof shown);
    assert_int_equal(status, 0);
    for (int r = 0; r < 3; r++) {
        char name[64], pattern[256];
        snprintf(name, sizeof name, "real/start-1/rank-%d.log", r);
        snprintf(pattern, sizeof pattern,
                 DATED "I am %d\n(.*problem\n)?" DATED "\\[1,0\\]<stdout\n", r);
        matches(file_text(name), pattern);
        matches(file_text(name), DATED "problem\n");
        matches(file_text(name), DATED "last\n");
        snprintf(pattern, sizeof pattern, TIME "rank %d: problem\n", r);
        matches(shown, pattern);
    }
    assert_null(file_text("real/start-1/mpirun.log"));
}

/* The number of lines of a file, and whether they are the numbers from 1 on. */
static long count_numbers(const char *name) {
    FILE *file = fopen(in_folder(name), "r");
    char line[256];
    long n = 0;
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) assert_int_equal(atol(strrchr(line, ' ')), ++n);
    fclose(file);
    return n;
}

enum { MANY = 60000 };

/* A child that writes MANY lines as rank 0. */
static pid_t start_many(launcher_output *out) {
    const pid_t pid = fork();
    if (pid == 0) {
        FILE *file = fdopen(launcher_output_writer(out, 1), "w");
        for (int i = 1; i <= MANY; i++) fprintf(file, "[1,0]<stdout>:line %d\n", i);
        fflush(file);
        _exit(0);
    }
    launcher_output_started(out);
    return pid;
}

/* Adds what the console shows now. */
static void read_console(const console *c, char *shown, size_t size) {
    struct pollfd there = {.fd = c->reader[0], .events = POLLIN};
    while (poll(&there, 1, 0) > 0) {
        const size_t n = strlen(shown);
        const ssize_t got = read(there.fd, shown + n, size - 1 - n);
        assert_true(got > 0);
        shown[n + (size_t)got] = '\0';
    }
}

/* Ranks are not held up by it, nor is any line missing in the file; those that were left out are
 * counted when it takes some again. */
static void console_that_takes_nothing(void **state) {
    (void)state;
    enum { SIZE = 8 << 20 };
    console c;
    char *shown = calloc(1, SIZE);
    unsigned long left_out = 0, n = 0;
    begin_console(&c);
    launcher_output *out = open_output("stuck", 1, 1);
    const pid_t pid = start_many(out);
    struct pollfd due = {.fd = launcher_output_fd(out), .events = POLLIN};
    while (waitpid(pid, NULL, WNOHANG) == 0) { /* it ends when all was taken from its pipe */
        launcher_output_forward(out);
        poll(&due, 1, 50);
    }
    while (launcher_output_forward(out)) read_console(&c, shown, SIZE);
    read_console(&c, shown, SIZE);
    launcher_output_close(out);
    end_console(&c, shown + strlen(shown), SIZE - strlen(shown));
    assert_int_equal(count_numbers("stuck/start-1/rank-0.log"), MANY);
    for (const char *at = shown; (at = strstr(at, "rank 0: line ")) != NULL; at++) n++;
    const char *note = strstr(shown, "dcp-run: ");
    assert_non_null(note);
    assert_int_equal(sscanf(note, "dcp-run: %lu lines were left out here", &left_out), 1);
    assert_int_equal(n + left_out, MANY);
    free(shown);
}

/* Until so much is in the file of start_many's lines that a console which nobody reads is full. */
static void wait_for_backlog(const char *path) {
    struct stat st;
    while (stat(path, &st) != 0 || st.st_size < 1215000) poll(NULL, 0, 1);
}

/* What a child sees that reads slowly is complete. */
static void console_that_is_slow(void **state) {
    (void)state;
    console c;
    char text[64];
    int status;
    begin_console(&c);
    fflush(NULL);
    launcher_output *out = open_output("slow", 1, 1);
    const pid_t reader = fork();
    if (reader == 0) {
        FILE *file = fdopen(c.reader[0], "r");
        char line[256];
        long n = 0;
        for (int i = 1; i <= 2; i++) close(i);
        launcher_output_started(out);
        setvbuf(file, NULL, _IOFBF, 512);
        wait_for_backlog(in_folder("slow/start-1/rank-0.log"));
        while (n < MANY && fgets(line, sizeof line, file))
            if (atol(strrchr(line, ' ')) != ++n) _exit(1);
        _exit(n != MANY);
    }
    close(c.reader[0]);
    c.reader[0] = -1;
    const pid_t writer = start_many(out);
    take_all(out);
    launcher_output_close(out);
    waitpid(writer, NULL, 0);
    end_console(&c, text, sizeof text); /* the reader's pipe ends */
    waitpid(reader, &status, 0);
    assert_int_equal(status, 0);
    assert_int_equal(count_numbers("slow/start-1/rank-0.log"), MANY);
}

static void console_whose_reader_has_left(void **state) {
    (void)state;
    console c;
    char text[64];
    begin_console(&c);
    close(c.reader[0]);
    c.reader[0] = -1;
    launcher_output *out = open_output("left", 1, 1);
    const pid_t pid = start_many(out);
    take_all(out);
    launcher_output_close(out);
    waitpid(pid, NULL, 0);
    end_console(&c, text, sizeof text);
    assert_int_equal(count_numbers("left/start-1/rank-0.log"), MANY);
}

static void folder_that_cannot_be_made(void **state) {
    (void)state;
    launcher_output *out;
    char path[600];
    snprintf(path, sizeof path, "%s", in_folder("no/such"));
    stderr_text_begin();
    int status = launcher_output_open(&out, path, 1, 1, "");
    assert_non_null(strstr(stderr_text_end(), "--logs: cannot make the folder"));
    assert_int_equal(status, PROGRAM_USAGE);
    snprintf(path, sizeof path, "%s", in_folder("file"));
    fclose(fopen(path, "w"));
    stderr_text_begin();
    status = launcher_output_open(&out, path, 1, 1, "");
    assert_non_null(strstr(stderr_text_end(), "a file of that name exists already"));
    assert_int_equal(status, PROGRAM_USAGE);
    assert_null(out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_tags_apart),
        cmocka_unit_test(takes_the_end_of_tags),
        cmocka_unit_test(lines_go_to_file_and_console),
        cmocka_unit_test(reads_what_mpirun_writes),
        cmocka_unit_test(console_that_takes_nothing),
        cmocka_unit_test(console_that_is_slow),
        cmocka_unit_test(console_whose_reader_has_left),
        cmocka_unit_test(folder_that_cannot_be_made),
    };
    signal(SIGPIPE, SIG_IGN); /* as in dcp-run */
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
