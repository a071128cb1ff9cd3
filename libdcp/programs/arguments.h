/* Command lines, and words that people type. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns the Levenshtein distance: the smallest number of letters that must be inserted, deleted
 * or replaced to turn one word into the other. Only the first 255 letters of a word count. */
size_t program_word_distance(const char *a, const char *b);

/* Command lines: a program has a table of options, from which its --help is printed and its argv is
 * parsed. */

typedef struct program_option {
    const char *name;     /* long name; NULL ends the table */
    const char *argument; /* the argument's name in the help; NULL: the option is a flag */
    const char *help;
    /* receives the argument; if an option is given twice, the last one counts */
    const char **value;
    bool *flag;  /* set to true */
    char letter; /* short form: 'n' for -n; 0: none */
} program_option;

/* Make rows of the table. */
#define PROGRAM_VALUE(name, argument, help, value)                                                 \
    { name, argument, help, value, NULL, 0 }
#define PROGRAM_FLAG(name, help, flag)                                                             \
    { name, NULL, help, NULL, flag, 0 }

typedef struct program_command {
    const char *name;              /* the program's name */
    const char *usage;             /* what follows the name; one line per form */
    const char *about;             /* the common use, and what the program does */
    const program_option *options; /* without --help, --version, --json and --dry-run */
    bool *json;                    /* not NULL: --json exists; with it, arguments must be UTF-8 */
    bool *dry_run;                 /* not NULL: --dry-run exists */
    const char *notes;             /* lines after the options; NULL: none */
    const char *statuses;          /* lines about the exit status; NULL: the usual line */
    bool stops;                    /* adds PROGRAM_STOPPED to the usual line */
    /* the first argument ends the options; the rest belongs to another program */
    bool ends_at_first;
} program_command;

/* Parses argv[1...] according to the table; options and arguments may be mixed. Returns -1 if the
 * program should continue, with its *n arguments in *args; *n is from min_args to max_args.
 * Otherwise returns the exit status, after rank 0 has printed --help, --version or an error. Calls
 * program_check_stdout and program_survive_file_limit. */
int program_arguments_parse(const program_command *command, int argc, char **argv, int min_args,
                            int max_args, char ***args, int *n);

/* Parses an integer from `min` to `max`. Returns 0, or PROGRAM_USAGE after a message. */
int program_count_parse(const char *option, const char *text, uint64_t min, uint64_t max,
                        uint64_t *out);
/* Parses a size such as "5GB", "1.5TB", "512KiB" or "100000". The result is rounded down, and must
 * be from 1 to 2^63 - 1 bytes. Returns 0, or PROGRAM_USAGE after a message. */
int program_size_parse(const char *option, const char *text, uint64_t *out);
