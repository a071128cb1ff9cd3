#include "programs/arguments.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/checks.h"
#include "programs/program.h"

enum { LONGEST = 255 };

static size_t min3(size_t a, size_t b, size_t c) {
    const size_t ab = a < b ? a : b;
    return ab < c ? ab : c;
}

/* Computes the table one row at a time. */
size_t program_word_distance(const char *a, const char *b) {
    size_t row[LONGEST + 1];
    const size_t n = strnlen(b, LONGEST);
    for (size_t j = 0; j <= n; j++) row[j] = j;
    for (size_t i = 0; i < LONGEST && a[i]; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < n; j++) {
            const size_t above = row[j + 1];
            row[j + 1] = min3(above + 1, row[j] + 1, diagonal + (a[i] != b[j]));
            diagonal = above;
        }
    }
    return row[n];
}

/* Parses options according to a table, with getopt_long. */

enum { MOST_OPTIONS = 32, OPTION_BASE = 256 };

/* A program's own options, followed by the options that several programs share. A NULL name ends
 * the list. */
typedef struct option_list {
    program_option rows[MOST_OPTIONS + 4];
    int n;
} option_list;

static void list_options(const program_command *command, option_list *list) {
    *list = (option_list){0};
    for (const program_option *o = command->options; o->name && list->n < MOST_OPTIONS; o++)
        list->rows[list->n++] = *o;
    if (command->dry_run)
        list->rows[list->n++] =
            (program_option){.name = "dry-run",
                             .help = "check all, print what would be done, and write nothing",
                             .flag = command->dry_run};
    if (command->json)
        list->rows[list->n++] = (program_option){
            .name = "json", .help = "print one JSON object", .flag = command->json};
}

/* Prints lines of the help. In the Python package, omits lines that mention mpirun. */
static void print_lines(const char *text) {
    char line[256], own[300];
    for (size_t n; *text; text += n + (text[n] == '\n')) {
        n = strcspn(text, "\n");
        snprintf(line, sizeof line, "%.*s", (int)n, text);
        if (!program_is_packaged())
            printf("%.*s\n", (int)n, text);
        else if (!strstr(line, "mpirun"))
            puts(program_own_names(line, own, sizeof own));
    }
}

static void print_option(const program_option *o) {
    char left[80], letter[8] = "", line[256];
    if (o->letter) snprintf(letter, sizeof letter, "-%c, ", o->letter);
    snprintf(left, sizeof left, "%s--%s%s%s", letter, o->name, o->argument ? " " : "",
             o->argument ? o->argument : "");
    snprintf(line, sizeof line, "  %-24s %s", left, o->help);
    print_lines(line);
}

static void print_help(const program_command *command, const option_list *list) {
    const char *line = command->usage, *lead = "Usage:";
    char text[256];
    while (*line) {
        int length = (int)strcspn(line, "\n");
        snprintf(text, sizeof text, "%s %s %.*s", lead, command->name, length, line);
        print_lines(text);
        line += length + (line[length] == '\n');
        lead = "      ";
    }
    puts("");
    print_lines(command->about);
    puts("\nOptions:");
    for (int i = 0; i < list->n; i++) print_option(&list->rows[i]);
    print_option(&(program_option){.name = "help", .help = "print this and exit"});
    print_option(&(program_option){.name = "version", .help = "print the version and exit"});
    if (command->notes) {
        puts("");
        print_lines(command->notes);
    }
    if (command->statuses)
        printf("\n%s\n", command->statuses);
    else
        printf("\nExit status: 0 done; 1 differs or corrupt; 2 wrong usage; 3 failure%s.\n",
               command->stops ? "; 143 stopped by SIGTERM" : "");
}

static void print_version(const program_command *command) {
    char own[64];
    printf("%s %s\n", program_own_names(command->name, own, sizeof own), dcp_version());
}

static int misuse(const program_command *command, const char *what, const char *which) {
    char own[64];
    if (program_rank() != 0) return PROGRAM_USAGE;
    return program_refuse("%s%s; try '%s --help'", what, which,
                          program_own_names(command->name, own, sizeof own));
}

/* Returns true if getopt_long stopped at a long option, not at a letter. In that case optopt is not
 * a letter, or it is the code of a long option that got a value but accepts none. */
static bool stopped_at_word(void) {
    return optopt <= 0 || optopt >= OPTION_BASE || optopt == 'h' || optopt == 'V';
}

/* Returns the option at which getopt_long stopped. Uses `text` if the option is a single letter. */
static const char *bad_option(char **argv, char text[3]) {
    if (stopped_at_word()) return argv[optind - 1];
    snprintf(text, 3, "-%c", optopt);
    return text;
}

/* Converts the options for getopt_long, which returns OPTION_BASE + the row for long options. */
static void fill_getopt(const program_command *command, const option_list *list,
                        struct option *names, char *letters) {
    letters += sprintf(letters, "%s:hV", command->ends_at_first ? "+" : "");
    for (int i = 0; i < list->n; i++) {
        const program_option *o = &list->rows[i];
        *names++ = (struct option){o->name, o->argument ? required_argument : no_argument, NULL,
                                   OPTION_BASE + i};
        if (o->letter) letters += sprintf(letters, "%c%s", o->letter, o->argument ? ":" : "");
    }
    *names++ = (struct option){"help", no_argument, NULL, 'h'};
    *names++ = (struct option){"version", no_argument, NULL, 'V'};
    *names = (struct option){0};
}

/* Returns the option that getopt_long returned as `c`. */
static const program_option *find_option(const option_list *list, int c) {
    if (c >= OPTION_BASE) return &list->rows[c - OPTION_BASE];
    for (int i = 0; i < list->n; i++)
        if (list->rows[i].letter == c) return &list->rows[i];
    return NULL;
}

/* Rejects URLs. Neither an argument of a program nor the value of an option may be a URL. */
static int check_path(const char *text) {
    dcp_error err;
    if (!core_path_check(NULL, text, &err)) return 0;
    return program_rank() == 0 ? program_refuse("%s", err.message) : PROGRAM_USAGE;
}

/* Returns -1 if the program should continue, otherwise the exit status. */
static int read_argv(const program_command *command, const option_list *list, int argc,
                     char **argv) {
    struct option names[MOST_OPTIONS + 8];
    char letters[3 * MOST_OPTIONS + 8], letter[3];
    fill_getopt(command, list, names, letters);
    opterr = 0;
    optind = 1;
    for (int c; (c = getopt_long(argc, argv, letters, names, NULL)) != -1;) {
        if (c == 'h' && program_rank() == 0) print_help(command, list);
        if (c == 'V' && program_rank() == 0) print_version(command);
        if (c == 'h' || c == 'V') return PROGRAM_DONE;
        const program_option *o = find_option(list, c);
        if (!o)
            return misuse(command,
                          c == ':'                          ? "argument missing after "
                          : optopt > 0 && stopped_at_word() ? "this option takes no value: "
                                                            : "unknown option ",
                          bad_option(argv, letter));
        if (o->argument && check_path(optarg)) return PROGRAM_USAGE;
        if (o->argument)
            *o->value = optarg;
        else
            *o->flag = true;
    }
    return -1;
}

/* Returns the name of the missing argument, which is argument n of the `needed` arguments. The
 * usage lists their names as the last words before its options and optional arguments. */
static const char *missing_name(const program_command *command, int needed, int n, char name[64]) {
    const char *words[16], *word = command->usage;
    int found = 0;
    while (*word && !strchr("[-\n", *word) && found < 16) {
        words[found++] = word;
        word += strcspn(word, " \n");
        word += *word == ' ';
    }
    if (found < needed) return "";
    word = words[found - needed + n];
    snprintf(name, 64, "%.*s", (int)strcspn(word, " \n"), word);
    return name;
}

/* JSON output includes the arguments, so they must be UTF-8. */
static int check_json(char **args, int n) {
    for (int i = 0; i < n; i++) {
        json_t *text = json_string(args[i]);
        json_decref(text);
        if (!text && program_rank() != 0) return PROGRAM_USAGE;
        if (!text)
            return program_refuse("--json: %s is not UTF-8, but JSON must be UTF-8; omit --json, "
                                  "or change into the folder and give '.'",
                                  args[i]);
    }
    return 0;
}

int program_arguments_parse(const program_command *command, int argc, char **argv, int min_args,
                            int max_args, char ***args, int *n) {
    option_list list;
    char name[64];
    program_check_stdout();
    program_survive_file_limit();
    list_options(command, &list);
    int status = read_argv(command, &list, argc, argv);
    if (status >= 0) return status;
    *args = argv + optind;
    *n = argc - optind;
    for (int i = 0; i < *n && !command->ends_at_first; i++) /* else they are not this program's */
        if (check_path((*args)[i])) return PROGRAM_USAGE;
    if (command->json && *command->json && check_json(*args, *n)) return PROGRAM_USAGE;
    if (*n > max_args) return misuse(command, "too many arguments: ", (*args)[max_args]);
    if (*n < min_args)
        return misuse(command, "missing argument ", missing_name(command, min_args, *n, name));
    return -1;
}

int program_count_parse(const char *option, const char *text, uint64_t min, uint64_t max,
                        uint64_t *out) {
    char *end;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || errno || value < min || value > max)
        return program_refuse("%s: '%s' is not a whole number from %" PRIu64 " to %" PRIu64, option,
                              text, min, max);
    *out = value;
    return 0;
}

/* Returns the number of bytes of the unit `text`, which is a decimal or binary prefix and a B, or
 * only a B, or empty. Returns 0 if it is not a unit. */
static uint64_t unit_bytes(const char *text) {
    static const char prefixes[] = "KMGTPE";
    const char *at = *text == 'k' ? prefixes : *text ? strchr(prefixes, *text) : NULL;
    if (strcmp(text, "") == 0 || strcmp(text, "B") == 0) return 1;
    if (!at || (strcmp(text + 1, "B") != 0 && strcmp(text + 1, "iB") != 0)) return 0;
    uint64_t bytes = 1;
    for (const char *p = prefixes; p <= at; p++) bytes *= text[1] == 'i' ? 1024 : 1000;
    return bytes;
}

/* Returns the number [text, end), which consists of digits and at most one decimal point, times
 * `unit`, rounded down. Returns -1 if the result is larger than 2^63 - 1. */
static int64_t scale_digits(const char *text, const char *end, uint64_t unit) {
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

int program_size_parse(const char *option, const char *text, uint64_t *out) {
    const char *end = text + strspn(text, "0123456789");
    if (*end == '.') end += 1 + strspn(end + 1, "0123456789");
    const uint64_t unit = unit_bytes(end);
    const int64_t bytes =
        text[0] >= '0' && text[0] <= '9' && unit ? scale_digits(text, end, unit) : 0;
    if (bytes < 0)
        return program_refuse("%s: '%s' is more than 9.2EB (2^63 - 1 bytes)", option, text);
    if (bytes == 0)
        return program_refuse(
            "%s: '%s' must be a size of at least 1 byte, such as 5GB, 1.5TB or 512KiB", option,
            text);
    *out = (uint64_t)bytes;
    return 0;
}
