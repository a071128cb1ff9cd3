/* Options by table over getopt_long, messages and exit statuses.
 *
 * The program's name for messages is argv[0]'s last part, as glibc keeps it. */
#include "cli.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "launch.h"

#define MAX_OPTIONS 32
#define OPTION_BASE 256

static void print_help(const cli_program *program) {
    const char *line = program->usage;
    const char *lead = "Usage:";
    while (*line) {
        int length = (int)strcspn(line, "\n");
        printf("%s %s %.*s\n", lead, program->name, length, line);
        line += length + (line[length] == '\n');
        lead = "      ";
    }
    printf("\n%s\n\nOptions:\n", program->about);
    for (const cli_option *o = program->options; o->name; o++) {
        char left[64];
        snprintf(left, sizeof left, "--%s%s%s", o->name, o->argument ? " " : "",
                 o->argument ? o->argument : "");
        printf("  %-24s %s\n", left, o->help);
    }
    printf("  %-24s %s\n  %-24s %s\n", "--help", "print this and exit", "--version",
           "print the version and exit");
    printf("\nExit status: 0 done; 1 differs or corrupt; 2 wrong usage; 3 failure%s.\n",
           program->stops ? "; 143 stopped by SIGTERM" : "");
}

/* What was printed is the program's result: that it could not be written is a failure. */
static void close_stdout(void) {
    const int failed = ferror(stdout) != 0;
    if (fclose(stdout) == 0 && !failed) return;
    cli_note("cannot write to stdout: %s", strerror(errno));
    _exit(CLI_FAILED);
}

static int misuse(const cli_program *program, const char *what, const char *which) {
    if (launch_env_rank() != 0) return CLI_USAGE;
    return cli_fail(CLI_USAGE, "%s%s; try '%s --help'", what, which, program->name);
}

/* What getopt_long stopped at; in `text`, where it is one letter. */
static const char *bad_option(char **argv, char *text) {
    if (optopt <= 0 || optopt >= OPTION_BASE) return argv[optind - 1];
    snprintf(text, 3, "-%c", optopt);
    return text;
}

static void fill_long_options(const cli_program *program, struct option *out) {
    int n = 0;
    for (const cli_option *o = program->options; o->name; o++, n++)
        out[n] = (struct option){o->name, o->argument ? required_argument : no_argument, NULL,
                                 OPTION_BASE + n};
    out[n++] = (struct option){"help", no_argument, NULL, 'h'};
    out[n++] = (struct option){"version", no_argument, NULL, 'V'};
    out[n] = (struct option){0};
}

/* What argument number n of the `needed` ones is called: the last words of the usage before what
 * may be left out. */
static const char *missing_name(const cli_program *program, int needed, int n, char *name) {
    const char *words[16], *word = program->usage;
    int found = 0;
    while (*word && *word != '[' && *word != '\n' && found < 16) {
        words[found++] = word;
        word += strcspn(word, " \n");
        word += *word == ' ';
    }
    if (found < needed) return "";
    word = words[found - needed + n];
    snprintf(name, 64, "%.*s", (int)strcspn(word, " \n"), word);
    return name;
}

int cli_parse(const cli_program *program, int argc, char **argv, int min_args, int max_args,
              char ***args, int *n) {
    struct option options[MAX_OPTIONS];
    char letter[3];
    fill_long_options(program, options);
    atexit(close_stdout);
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, ":hV", options, NULL)) != -1;) {
        if (c == 'h') {
            print_help(program);
            return CLI_DONE;
        }
        if (c == 'V') {
            printf("%s %s\n", program->name, dcp_version());
            return CLI_DONE;
        }
        if (c < OPTION_BASE)
            return misuse(program, c == ':' ? "argument missing after " : "unknown option ",
                          bad_option(argv, letter));
        const cli_option *o = &program->options[c - OPTION_BASE];
        if (o->argument)
            *o->value = optarg;
        else
            *o->flag = 1;
    }
    *args = argv + optind;
    *n = argc - optind;
    if (*n >= min_args && *n <= max_args) return -1;
    if (*n > max_args) return misuse(program, "too many arguments: ", (*args)[max_args]);
    char name[64];
    return misuse(program, "missing argument ", missing_name(program, min_args, *n, name));
}

/* One line, whatever names it quotes. */
static void print_message(const char *fmt, va_list args) {
    char message[1200];
    vsnprintf(message, sizeof message, fmt, args);
    for (char *c = message; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f) *c = '?';
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, message);
}

int cli_fail(int exit_status, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    print_message(fmt, args);
    va_end(args);
    return exit_status;
}

void cli_note(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    print_message(fmt, args);
    va_end(args);
}

int cli_fail_errno(const char *what, const char *path) {
    int code = errno;
    if (code == ENOENT) return cli_fail(CLI_USAGE, "%s %s: no such file or folder", what, path);
    if (code == ENOTDIR || code == EISDIR || code == ENAMETOOLONG)
        return cli_fail(CLI_USAGE, "%s %s: %s", what, path, strerror(code));
    if (code == EEXIST || code == ENOTEMPTY)
        return cli_fail(CLI_USAGE, "%s %s: another file is there; choose another name", what, path);
    return cli_fail(CLI_FAILED, "%s %s: %s", what, path, strerror(code));
}

static int exit_status(int status) {
    switch (status) {
    case DCP_OK:
        return CLI_DONE;
    case DCP_ERR_CORRUPT:
    case DCP_ERR_MISMATCH:
        return CLI_DIFFERS;
    case DCP_ERR_ARG:
    case DCP_ERR_STATE:
    case DCP_ERR_BUSY:
    case DCP_ERR_NOT_FOUND:
    case DCP_ERR_UNSUPPORTED:
        return CLI_USAGE;
    default:
        return CLI_FAILED;
    }
}

int cli_report(const dcp_error *err) {
    if (err->rank < 0 || launch_env_rank() == 0)
        cli_note("%s", err->message[0] ? err->message : dcp_status_text(err->status));
    return exit_status(err->status);
}

static volatile sig_atomic_t caught; /* a handler has no other way to tell */

static void catch_signal(int number) { caught = number; }

void cli_catch_signals(void) {
    struct sigaction action = {.sa_handler = catch_signal, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
}

int cli_caught(void) { return caught != 0; }

int cli_ended(int exit_status) {
    return exit_status == CLI_FAILED && caught == SIGTERM ? CLI_STOPPED : exit_status;
}

int cli_parse_count(const char *option, const char *text, uint64_t max, uint64_t *out) {
    char *end;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || errno || value < 1 || value > max)
        return cli_fail(CLI_USAGE, "%s: '%s' is not a whole number from 1 to %" PRIu64, option,
                        text, max);
    *out = value;
    return 0;
}

/* The unit that `text` is: a decimal or binary prefix and a B, which may be missing after none;
 * 0: none. */
static uint64_t unit_bytes(const char *text) {
    static const char prefixes[] = "KMGTPE";
    const char *at = *text == 'k' ? prefixes : *text ? strchr(prefixes, *text) : NULL;
    if (strcmp(text, "") == 0 || strcmp(text, "B") == 0) return 1;
    if (!at || (strcmp(text + 1, "B") != 0 && strcmp(text + 1, "iB") != 0)) return 0;
    uint64_t bytes = 1;
    for (const char *p = prefixes; p <= at; p++) bytes *= text[1] == 'i' ? 1024 : 1000;
    return bytes;
}

/* Digits [text, end) with one point at most, times `unit`, rounded down; -1: over 2^63 - 1. */
static int64_t scaled(const char *text, const char *end, uint64_t unit) {
    const char *point = memchr(text, '.', (size_t)(end - text));
    __int128 whole = 0, part = 0, tenths = 1;
    for (const char *c = text; c < (point ? point : end); c++) {
        whole = whole * 10 + (*c - '0');
        if (whole > INT64_MAX) return -1;
    }
    for (const char *c = point ? point + 1 : end; c < end && tenths < 1000000000000000000; c++) {
        part = part * 10 + (*c - '0');
        tenths *= 10;
    }
    const __int128 bytes = whole * unit + part * unit / tenths;
    return bytes > INT64_MAX ? -1 : (int64_t)bytes;
}

int cli_parse_size(const char *option, const char *text, uint64_t *out) {
    const char *end = text + strspn(text, "0123456789");
    if (*end == '.') end += 1 + strspn(end + 1, "0123456789");
    const uint64_t unit = unit_bytes(end);
    const int64_t bytes = text[0] >= '0' && text[0] <= '9' && unit ? scaled(text, end, unit) : 0;
    if (bytes < 0)
        return cli_fail(CLI_USAGE, "%s: '%s' is more than 9.2EB (2^63 - 1 bytes)", option, text);
    if (bytes == 0)
        return cli_fail(CLI_USAGE,
                        "%s: '%s' is not a size such as 5GB, 1.5TB or 512KiB: at least a byte",
                        option, text);
    *out = (uint64_t)bytes;
    return 0;
}

const char *cli_bytes(uint64_t bytes, char *text) {
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    double value = (double)bytes;
    int unit = 0;
    while (value >= 999.5 && unit < 6) {
        value /= 1000;
        unit++;
    }
    snprintf(text, 32, unit ? "%.3g %s" : "%.0f %s", value, units[unit]);
    return text;
}

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void cli_progress_start(cli_progress *bar, const char *what) {
    double now = now_s();
    *bar = (cli_progress){.what = what,
                          .start_s = now,
                          .last_s = now,
                          .on = isatty(STDERR_FILENO) && launch_env_rank() == 0};
}

void cli_progress_update(cli_progress *bar, uint64_t done, uint64_t total) {
    enum { WIDTH = 40 };
    char speed[32];
    if (!bar->on) return;
    double now = now_s(), elapsed = now - bar->start_s;
    if (elapsed < 2 || now - bar->last_s < 0.2) return;
    double part = total ? (double)done / (double)total : 1;
    int full = (int)(part * WIDTH);
    fprintf(stderr, "\r%s [%.*s%*s] %3.0f%%  %s/s ", bar->what, full,
            "########################################", WIDTH - full, "", part * 100,
            cli_bytes((uint64_t)((double)done / elapsed), speed));
    fflush(stderr);
    bar->last_s = now;
    bar->shown = 1;
}

void cli_progress_end(cli_progress *bar) {
    if (bar->shown) fputs("\r\033[K", stderr);
    bar->on = bar->shown = 0;
}
