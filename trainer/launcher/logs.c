/* "[1,3]<stdout>:" is an example of a tag. mpirun writes this tag before each line of rank 3, and
 * again before the rest of a line that other output has interrupted. */
#include "launcher/logs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "programs/program.h"

enum { TAG_DIGITS = 9 };

/* What the match functions return instead of a length. */
enum { NO_TAG = 0, CUT_TAG = -1 };

/* Returns the length of `text` if `at` begins with it; CUT_TAG if the bytes are only the beginning
 * of `text`; otherwise NO_TAG. */
static int match_text(const char *at, const char *end, const char *text) {
    const size_t n = strlen(text), there = (size_t)(end - at);
    if (there < n) return memcmp(at, text, there) == 0 ? CUT_TAG : NO_TAG;
    return memcmp(at, text, n) == 0 ? (int)n : NO_TAG;
}

static int match_number(const char *at, const char *end, int *value) {
    int n = 0;
    *value = 0;
    for (; at + n < end && at[n] >= '0' && at[n] <= '9'; n++) {
        if (n == TAG_DIGITS) return NO_TAG;
        *value = *value * 10 + (at[n] - '0');
    }
    return at + n == end ? CUT_TAG : n;
}

static int match_stream(const char *at, const char *end) {
    static const char *const streams[] = {"<stdout>:", "<stderr>:", "<stddiag>:"};
    int n = NO_TAG;
    for (size_t i = 0; i < sizeof streams / sizeof *streams && n == NO_TAG; i++)
        n = match_text(at, end, streams[i]);
    return n;
}

/* Returns the length of the tag at `at`, and stores the tag's rank in *rank. Returns NO_TAG or
 * CUT_TAG if there is no whole tag. */
static int match_tag(const char *at, const char *end, const char *tag_end, int *rank) {
    const char *from = at;
    const int parts = *tag_end ? 7 : 6;
    int job = 0;
    for (int part = 0; part < parts; part++) {
        const int n = part == 0   ? match_text(at, end, "[")
                      : part == 1 ? match_number(at, end, &job)
                      : part == 2 ? match_text(at, end, ",")
                      : part == 3 ? match_number(at, end, rank)
                      : part == 4 ? match_text(at, end, "]")
                      : part == 5 ? match_stream(at, end)
                                  : match_text(at, end, tag_end);
        if (n <= 0) return n;
        at += n;
    }
    return (int)(at - from);
}

/* Splits `bytes`; returns how many of them were handled; the rest may be the beginning of a tag. */
static size_t split(launcher_tagged *tagged, const char *bytes, size_t n, launcher_tagged_fn take,
                    void *ctx) {
    const char *at = bytes, *end = bytes + n, *text = bytes;
    while (at < end) {
        int rank = -1, length;
        if (*at == '\n') {
            take(ctx, tagged->rank, text, (size_t)(++at - text));
            tagged->rank = -1;
            text = at;
            continue;
        }
        length = *at == '[' ? match_tag(at, end, tagged->tag_end, &rank) : NO_TAG;
        if (length == NO_TAG || (length > 0 && rank >= tagged->ranks)) {
            at++;
            continue;
        }
        if (at > text) take(ctx, tagged->rank, text, (size_t)(at - text));
        if (length == CUT_TAG) return (size_t)(at - bytes);
        tagged->rank = rank;
        text = at += length;
    }
    if (at > text) take(ctx, tagged->rank, text, (size_t)(at - text));
    return n;
}

void launcher_tagged_split(launcher_tagged *tagged, const char *bytes, size_t n,
                           launcher_tagged_fn take, void *ctx) {
    while (n > 0 && tagged->n_held > 0) { /* add bytes until it is clear whether they are a tag */
        char held[LAUNCHER_TAG_BYTES];
        const size_t n_held = tagged->n_held + 1;
        memcpy(held, tagged->held, tagged->n_held);
        held[n_held - 1] = *bytes++;
        n--;
        tagged->n_held = 0;
        const size_t done = split(tagged, held, n_held, take, ctx);
        tagged->n_held = n_held - done;
        memcpy(tagged->held, held + done, tagged->n_held);
    }
    const size_t done = split(tagged, bytes, n, take, ctx);
    if (done == n) return;
    tagged->n_held = n - done;
    memcpy(tagged->held, bytes + done, tagged->n_held);
}

void launcher_tagged_end(launcher_tagged *tagged, launcher_tagged_fn take, void *ctx) {
    if (tagged->n_held > 0) take(ctx, tagged->rank, tagged->held, tagged->n_held);
    tagged->n_held = 0;
}

enum {
    READ_BYTES = 1 << 16,
    READS_A_TAKE = 16,
    LINE_BYTES = 1 << 16,    /* a longer line is split */
    BACKLOG_BYTES = 1 << 20, /* bytes for a console that are stored before reading stops */
    CONSOLE_BYTES = 4096,    /* bytes that a writable pipe accepts at once */
    TERMINAL_BYTES = 256,    /* bytes that a writable terminal accepts at once */
};
static const double stuck_s = 2; /* a console that accepts nothing for this long is stuck */
static const double last_s = 1;  /* the longest wait for the console at the end */

typedef struct output_line {
    char *text;
    size_t n;
} output_line;

/* One of mpirun's two streams, and the console for it. */
typedef struct output_stream {
    int reader, writer; /* the pipe; -1: closed */
    launcher_tagged tagged;
    output_line *lines; /* [ranks + 1]: incomplete lines of the ranks, and of mpirun */
    int console;        /* descriptor; -1: it has no reader any more */
    size_t at_once;     /* bytes per write to the console */
    char *backlog;      /* [n_backlog]: not written yet */
    size_t n_backlog, room;
    double moved_at; /* when the console last accepted something, or had nothing to accept */
    bool is_stuck;
    unsigned long left_out; /* the number of lines left out since the console got stuck */
    struct launcher_output *output;
} output_stream;

struct launcher_output {
    char *dir; /* DIR/start-K */
    int ranks;
    const char *tag_end;
    output_stream streams[2]; /* stdout, stderr */
    FILE **logs;              /* [ranks + 1]; NULL: not open */
    bool log_failed;          /* a log could not be written, which has been reported */
    int epoll;
};

static const char *file_path(const launcher_output *o, const char *name) {
    static char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", o->dir, name);
    return path;
}

/* The files. */

static const char *log_path(const launcher_output *o, int i) {
    char name[32] = "mpirun.log";
    if (i < o->ranks) snprintf(name, sizeof name, "rank-%d.log", i);
    return file_path(o, name);
}

static void close_logs(launcher_output *o) {
    for (int i = 0; i <= o->ranks; i++) {
        if (o->logs[i]) fclose(o->logs[i]);
        o->logs[i] = NULL;
    }
}

static void report_log_failure(launcher_output *o, const char *path) {
    if (!o->log_failed) program_note("cannot write the log %s: %s", path, strerror(errno));
    o->log_failed = true;
}

static FILE *open_log(launcher_output *o, int i) {
    if (o->logs[i]) return o->logs[i];
    o->logs[i] = fopen(log_path(o, i), "ae");
    if (!o->logs[i] && errno == EMFILE) {
        close_logs(o);
        o->logs[i] = fopen(log_path(o, i), "ae");
    }
    if (!o->logs[i]) report_log_failure(o, log_path(o, i));
    return o->logs[i];
}

static void flush_logs(launcher_output *o) {
    for (int i = 0; i <= o->ranks; i++)
        if (o->logs[i] && fflush(o->logs[i]) != 0) report_log_failure(o, log_path(o, i));
}

/* The console. */

static void append_to_console(output_stream *s, const char *text, size_t n) {
    if (s->n_backlog + n > s->room) {
        const size_t room = 2 * (s->n_backlog + n);
        char *grown = realloc(s->backlog, room);
        if (!grown) return;
        s->backlog = grown;
        s->room = room;
    }
    memcpy(s->backlog + s->n_backlog, text, n);
    s->n_backlog += n;
}

/* Waits for the console until the time `end`. Returns true if it is writable. */
static bool can_write(const output_stream *s, double end) {
    const double left = end - program_now_s();
    struct pollfd console = {.fd = s->console, .events = POLLOUT};
    return poll(&console, 1, left > 0 ? (int)(1000 * left) : 0) > 0;
}

/* Returns how many bytes to write next: whole lines if at least one fits, because other programs
 * write to the console, too. */
static size_t next_write(const output_stream *s, size_t from) {
    const size_t left = s->n_backlog - from, n = left < s->at_once ? left : s->at_once;
    const char *end = memrchr(s->backlog + from, '\n', n);
    return end ? (size_t)(end + 1 - (s->backlog + from)) : n;
}

static void give_console_up(output_stream *s) {
    epoll_ctl(s->output->epoll, EPOLL_CTL_DEL, s->console, NULL);
    s->console = -1;
}

static void end_stuck(output_stream *s) {
    char text[128];
    const int n = snprintf(text, sizeof text,
                           "dcp-run: %lu lines were left out here: the files of --logs have them\n",
                           s->left_out);
    s->is_stuck = false;
    s->left_out = 0;
    append_to_console(s, text, (size_t)n);
}

/* Writes what the console accepts until the time `end`, or without waiting if `end` is 0. */
static void flush_console(output_stream *s, double end) {
    size_t done = 0;
    while (s->console >= 0 && done < s->n_backlog && can_write(s, end)) {
        const ssize_t n = write(s->console, s->backlog + done, next_write(s, done));
        if (n < 0 && errno != EINTR && errno != EAGAIN) give_console_up(s);
        if (n <= 0) break;
        done += (size_t)n;
    }
    if (s->console < 0) done = s->n_backlog;
    if (done > 0 || s->n_backlog == 0) s->moved_at = program_now_s();
    if (done > 0) memmove(s->backlog, s->backlog + done, s->n_backlog - done);
    s->n_backlog -= done;
    if (s->n_backlog == 0 && s->is_stuck) end_stuck(s);
}

/* Returns true if reading has to stop, because there is no room for more lines. */
static bool holds_up(output_stream *s) {
    if (s->n_backlog < BACKLOG_BYTES || s->is_stuck) return false;
    if (program_now_s() - s->moved_at >= stuck_s) s->is_stuck = true;
    return !s->is_stuck;
}

/* Lines. */

/* Writes "2026-11-23 12:03:04.123 "; returns its length. */
static size_t stamp(char text[40]) {
    struct timespec now;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &tm);
    size_t n = strftime(text, 32, "%Y-%m-%d %H:%M:%S", &tm);
    n += (size_t)snprintf(text + n, 40 - n, ".%03d ", (int)(now.tv_nsec / 1000000));
    return n;
}

/* Writes a whole line, which is passed without its '\n'. */
static void put_line(output_stream *s, int i, const char *text, size_t n) {
    static const size_t date = sizeof "2026-11-23 " - 1; /* the console shows only the time */
    launcher_output *o = s->output;
    char time[40], who[32] = "mpirun: ";
    const size_t n_time = stamp(time);
    FILE *log = open_log(o, i);
    if (log && (fwrite(time, 1, n_time, log) < n_time || fwrite(text, 1, n, log) < n ||
                fputc('\n', log) == EOF))
        report_log_failure(o, log_path(o, i));
    if (s->console < 0) return;
    if (s->is_stuck) {
        s->left_out++;
        return;
    }
    if (i < o->ranks) snprintf(who, sizeof who, "rank %d: ", i);
    append_to_console(s, time + date, n_time - date);
    append_to_console(s, who, strlen(who));
    append_to_console(s, text, n);
    append_to_console(s, "\n", 1);
}

static void end_line(output_stream *s, int i) {
    output_line *line = &s->lines[i];
    put_line(s, i, line->text ? line->text : "", line->n);
    free(line->text);
    *line = (output_line){0};
}

static void take_part(void *ctx, int rank, const char *text, size_t n) {
    output_stream *s = ctx;
    const int i = rank < 0 ? s->output->ranks : rank;
    output_line *line = &s->lines[i];
    const bool ends = n > 0 && text[n - 1] == '\n';
    n -= (size_t)ends;
    if (line->n == 0 && ends) {
        put_line(s, i, text, n);
        return;
    }
    char *grown = n > 0 ? realloc(line->text, line->n + n) : line->text;
    if (grown && n > 0) {
        memcpy(grown + line->n, text, n);
        line->text = grown;
        line->n += n;
    }
    if (ends || line->n >= LINE_BYTES) end_line(s, i);
}

/* Streams. */

static void end_stream(output_stream *s) {
    launcher_tagged_end(&s->tagged, take_part, s);
    for (int i = 0; i <= s->output->ranks; i++)
        if (s->lines[i].n > 0) end_line(s, i);
    if (s->reader >= 0) close(s->reader);
    s->reader = -1;
}

/* Reads once. Returns true if there may be more. */
static bool read_stream(output_stream *s) {
    static char bytes[READ_BYTES];
    if (s->reader < 0) return false;
    const ssize_t n = read(s->reader, bytes, sizeof bytes);
    if (n > 0) launcher_tagged_split(&s->tagged, bytes, (size_t)n, take_part, s);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) end_stream(s);
    return n > 0;
}

/* Sets the events for which a descriptor is watched. A regular file cannot be watched, but need not
 * be, because it is never slow. */
static void watch(int epoll, int fd, uint32_t events) {
    struct epoll_event event = {.events = events, .data.fd = fd};
    if (fd < 0) return;
    if (events == 0)
        epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL);
    else if (epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event) != 0)
        epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

static void set_interest(launcher_output *o) {
    const bool held_up = holds_up(&o->streams[0]) || holds_up(&o->streams[1]);
    for (int i = 0; i < 2; i++) {
        output_stream *s = &o->streams[i];
        watch(o->epoll, s->reader, held_up ? 0 : EPOLLIN);
        watch(o->epoll, s->console, s->n_backlog > 0 ? EPOLLOUT : 0);
    }
}

bool launcher_output_forward(launcher_output *o) {
    output_stream *s = o->streams;
    bool more = true, left = false;
    for (int i = 0; i < READS_A_TAKE && more; i++) {
        for (int k = 0; k < 2; k++) flush_console(&s[k], 0);
        if (holds_up(&s[0]) || holds_up(&s[1])) break;
        more = read_stream(&s[0]) | read_stream(&s[1]);
    }
    flush_logs(o);
    for (int k = 0; k < 2; k++) {
        flush_console(&s[k], 0);
        left |= s[k].reader >= 0 || s[k].n_backlog > 0;
    }
    set_interest(o);
    return left;
}

/* Open and close. */

static int make_folder_at(const char *path) {
    struct stat st;
    if (mkdir(path, 0777) == 0) return 0;
    if (errno == EEXIST && stat(path, &st) == 0 && S_ISDIR(st.st_mode)) return 0;
    return program_fail_errno("--logs: cannot make the folder", path);
}

static int open_output_stream(launcher_output *o, int i) {
    output_stream *s = &o->streams[i];
    int ends[2];
    s->lines = calloc((size_t)o->ranks + 1, sizeof *s->lines);
    if (!s->lines || pipe2(ends, O_CLOEXEC) != 0) return -1;
    s->reader = ends[0];
    s->writer = ends[1];
    s->tagged = (launcher_tagged){.tag_end = o->tag_end, .ranks = o->ranks, .rank = -1};
    s->console = i == 0 ? STDOUT_FILENO : STDERR_FILENO;
    s->at_once = isatty(s->console) ? TERMINAL_BYTES : CONSOLE_BYTES;
    s->moved_at = program_now_s();
    return fcntl(s->reader, F_SETFL, O_NONBLOCK);
}

static int prepare_output(launcher_output *o, const char *dir, int start) {
    for (int i = 0; i < 2; i++)
        o->streams[i] = (output_stream){.reader = -1, .writer = -1, .console = -1, .output = o};
    o->epoll = epoll_create1(EPOLL_CLOEXEC);
    o->logs = calloc((size_t)o->ranks + 1, sizeof *o->logs);
    if (asprintf(&o->dir, "%s/start-%d", dir, start) < 0) o->dir = NULL;
    if (o->epoll < 0 || !o->logs || !o->dir || open_output_stream(o, 0) != 0 ||
        open_output_stream(o, 1) != 0)
        return program_fail(PROGRAM_FAILED, "--logs: %s", strerror(errno));
    const int status = make_folder_at(dir);
    return status != 0 ? status : make_folder_at(o->dir);
}

static void free_output(launcher_output *o) {
    for (int i = 0; i < 2; i++) {
        output_stream *s = &o->streams[i];
        if (s->reader >= 0) close(s->reader);
        if (s->writer >= 0) close(s->writer);
        free(s->lines);
        free(s->backlog);
    }
    if (o->epoll >= 0) close(o->epoll);
    free(o->logs);
    free(o->dir);
    free(o);
}

int launcher_output_open(launcher_output **out, const char *dir, int start, int ranks,
                         const char *tag_end) {
    launcher_output *o = calloc(1, sizeof *o);
    *out = NULL;
    if (!o) return program_no_memory();
    o->ranks = ranks;
    o->tag_end = tag_end;
    const int status = prepare_output(o, dir, start);
    if (status != 0) {
        free_output(o);
        return status;
    }
    set_interest(o);
    *out = o;
    return 0;
}

int launcher_output_writer(const launcher_output *o, int stream) {
    return o->streams[stream == STDOUT_FILENO ? 0 : 1].writer;
}

void launcher_output_started(launcher_output *o) {
    for (int i = 0; i < 2; i++) {
        if (o->streams[i].writer >= 0) close(o->streams[i].writer);
        o->streams[i].writer = -1;
    }
}

int launcher_output_fd(const launcher_output *o) { return o->epoll; }

void launcher_output_stacks(launcher_output *o, const char *text) {
    fputs(text, stderr);
    if (!o) return;
    FILE *file = fopen(file_path(o, "stacks.log"), "ae");
    if (file) fputs(text, file);
    if (!file || fclose(file) != 0) report_log_failure(o, file_path(o, "stacks.log"));
}

void launcher_output_close(launcher_output *o) {
    if (!o) return;
    const double end = program_now_s() + last_s;
    launcher_output_started(o);
    for (int i = 0; i < 2; i++) {
        output_stream *s = &o->streams[i];
        for (int k = 0; k < READS_A_TAKE && read_stream(s); k++) flush_console(s, 0);
        end_stream(s);
    }
    for (int i = 0; i < 2; i++) {
        output_stream *s = &o->streams[i];
        flush_console(s, s->is_stuck ? 0 : end);
        flush_console(s, 0); /* the message about lines that were left out */
    }
    close_logs(o);
    free_output(o);
}
