/* What the command-line programs share: options, messages, exit statuses, a progress bar. */
#ifndef RESHARD_CLI_H
#define RESHARD_CLI_H

#include <stdint.h>

#include "dcp/error.h"

enum {
    CLI_DONE = 0,    /* or: same, intact */
    CLI_DIFFERS = 1, /* or corrupt */
    CLI_USAGE = 2,   /* wrong usage or configuration */
    CLI_FAILED = 3,
    CLI_STOPPED = 143, /* by SIGTERM, having cleaned up */
};

typedef struct cli_option {
    const char *name;     /* long name; NULL ends the table */
    const char *argument; /* its name in the help; NULL: a flag */
    const char *help;
    const char **value; /* set to the argument */
    int *flag;          /* set to 1 */
} cli_option;

typedef struct cli_program {
    const char *name;
    const char *usage; /* what follows the name; one line a form */
    const char *about;
    const cli_option *options; /* besides --help and --version */
    int stops;                 /* it ends with CLI_STOPPED after SIGTERM */
} cli_program;

/* Parses argv[1...] by the table; options and arguments may be mixed. Returns -1 to go on, with
 * the arguments in *args (n of them, min to max), or the status to exit with: --help and --version
 * have been printed, or what is wrong has. From then on the program ends with CLI_FAILED where its
 * stdout cannot be written. */
int cli_parse(const cli_program *program, int argc, char **argv, int min_args, int max_args,
              char ***args, int *n);

/* Print "<program>: <message>" on stderr and return `exit_status`. */
int cli_fail(int exit_status, const char *fmt, ...) DCP_PRINTF(2, 3);
/* From errno: "<what> <path>: <errno's text>"; CLI_USAGE for a path that is not there,
 * leads through a file, or is taken. */
int cli_fail_errno(const char *what, const char *path);
/* The message of a libdcp function that failed, and its exit status; *err is its error. Of a
 * collective one rank 0 alone prints. */
int cli_report(const dcp_error *err);
void cli_note(const char *fmt, ...) DCP_PRINTF(1, 2);

/* From now on SIGINT, SIGTERM and SIGHUP only make cli_caught true: for programs that have to clean
 * up what they began. A second signal ends the program. */
void cli_catch_signals(void);
int cli_caught(void);
/* What to end with: a failure after SIGTERM becomes CLI_STOPPED. */
int cli_ended(int exit_status);

/* A whole number from 1 to max; 0 or CLI_USAGE. */
int cli_parse_count(const char *option, const char *text, uint64_t max, uint64_t *out);
/* "5GB", "1.5TB", "512KiB", "100000": from 1 to 2^63 - 1 bytes, rounded down; 0 or CLI_USAGE. */
int cli_parse_size(const char *option, const char *text, uint64_t *out);
/* "1.50 GB" into text[32]. */
const char *cli_bytes(uint64_t bytes, char *text);

/* A bar on stderr, on a terminal only, once two seconds have passed. */
typedef struct cli_progress {
    const char *what;
    double start_s, last_s;
    int on, shown;
} cli_progress;

void cli_progress_start(cli_progress *bar, const char *what);
void cli_progress_update(cli_progress *bar, uint64_t done, uint64_t total);
void cli_progress_end(cli_progress *bar);

#endif
