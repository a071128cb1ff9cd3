/* Words that people type. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Levenshtein's distance: how many letters are put in, left out or replaced. Of words of more than
 * 255 letters the first ones count. */
size_t program_word_distance(const char *a, const char *b);

/* Command lines: a program is a table of options, from which its --help is printed and its argv is
 * read. */

typedef struct program_option {
    const char *name;     /* long name; NULL ends the table */
    const char *argument; /* its name in the help; NULL: a flag */
    const char *help;
    const char **value; /* set to the argument; of an option that is given twice the last counts */
    int *flag;          /* set to 1 */
    char letter;        /* its short form: 'n' for -n; 0: none */
} program_option;

/* Rows of the table. */
#define PROGRAM_VALUE(name, argument, help, value)                                                 \
    { name, argument, help, value, NULL, 0 }
#define PROGRAM_FLAG(name, help, flag)                                                             \
    { name, NULL, help, NULL, flag, 0 }

typedef struct program_command {
    const char *name;              /* of the program */
    const char *usage;             /* what follows the name; one line a form */
    const char *about;             /* the common use, and what the program does */
    const program_option *options; /* besides those below, --help and --version */
    int *json;                     /* where set, there is --json; then arguments have to be UTF-8 */
    int *dry_run;                  /* where set, there is --dry-run */
    const char *notes;             /* lines after the options; NULL: none */
    const char *statuses;          /* the lines on the exit status; NULL: what the tools have */
    int stops;                     /* of these: it ends with PROGRAM_STOPPED after SIGTERM */
    int ends_at_first; /* the first argument ends the options: the rest is another program's */
} program_command;

/* Reads argv[1...] by the table; options and arguments may be mixed. Returns -1 to go on, with the
 * arguments in *args (n of them, min to max), or the status to exit with: --help and --version have
 * been printed, or what is wrong has, by rank 0 alone. From then on stdout is checked
 * (program_check_stdout). */
int program_arguments_parse(const program_command *command, int argc, char **argv, int min_args,
                            int max_args, char ***args, int *n);

/* A whole number from `min` to `max`; 0 or PROGRAM_USAGE after a message. */
int program_count_parse(const char *option, const char *text, uint64_t min, uint64_t max,
                        uint64_t *out);
/* "5GB", "1.5TB", "512KiB", "100000": from 1 to 2^63 - 1 bytes, rounded down; 0 or PROGRAM_USAGE.
 */
int program_size_parse(const char *option, const char *text, uint64_t *out);
