/* Parsing dcp-run's command line. Options end at PROGRAM, whose own options stay untouched. */
#include "launcher/options.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <dcp/error.h>

enum { EXIT_OK = 0, EXIT_USAGE = 2, MAX_RANKS = 4096, MAX_RESTARTS = 1000000 };

static const char help[] =
    "Usage: dcp-run -n N [options] -- PROGRAM ARGS\n"
    "\n"
    "Common use:\n"
    "  dcp-run -n 4 -- dcp-train llama.json                            four ranks\n"
    "  dcp-run -n 4 --restart-ranks 8,4 -- dcp-train llama.json        after a failure eight\n"
    "\n"
    "Starts N ranks of PROGRAM through mpirun on this host, watches them, and starts them again\n"
    "when one fails.\n"
    "\n"
    "  -n, --ranks N            ranks of the first start\n"
    "      --restart-ranks LIST ranks of the restarts, as 8 or 8,4,2: one a restart, the last one\n"
    "                           repeats (default: N)\n"
    "      --max-restarts R     restarts in a row without a newer step in DIR (default: 3)\n"
    "      --watch DIR          checkpoint directory (default: checkpoint.dir of the CONFIG.json\n"
    "                           that dcp-train is given)\n"
    "      --grace SECONDS      how long ranks may take to save and end (default: 60)\n"
    "      --help, --version\n"
    "\n"
    "SIGTERM, SIGINT: the ranks get SIGTERM, to save and end; at the second one, or after the\n"
    "grace period, SIGKILL. SIGUSR1 is passed on. stdin is closed to the ranks.\n"
    "After a failure, once this run has published a step in DIR, the ranks find DCP_RUN_RESTART=1\n"
    "in their environment: dcp-train then goes on from the newest step, whatever\n"
    "checkpoint.resume and checkpoint.overwrite say.\n"
    "A reason that the ranks write to the file $DCP_RUN_REASON says that a restart would fail in\n"
    "the same way (dcp-train: a full disk at the end, a loss that diverges): one is tried.\n"
    "Exit status: 0 done; 1, 2, 143 (stopped by SIGTERM) as PROGRAM gave it, without a restart;\n"
    "2 wrong usage; 3 failure with no restart left.\n";

static int usage(const char *what, const char *value) {
    fprintf(stderr, "dcp-run: %s%s%s; see dcp-run --help\n", what, value ? ": " : "",
            value ? value : "");
    return -1;
}

/* A whole number of [min, max] that ends at `end`; sets *after to what follows it. */
static int parse_int(const char *text, long min, long max, const char **after, int *out) {
    char *end;
    errno = 0;
    const long value = strtol(text, &end, 10);
    if (end == text || errno != 0 || value < min || value > max) return -1;
    *after = end;
    *out = (int)value;
    return 0;
}

static int parse_count(const char *text, long min, long max, int *out) {
    const char *after;
    return parse_int(text, min, max, &after, out) == 0 && *after == '\0' ? 0 : -1;
}

static int parse_list(const char *text, run_options *out) {
    int *list = calloc(strlen(text) + 1, sizeof *list);
    if (!list) return -1;
    int n = 0, bad;
    const char *at = text;
    while ((bad = parse_int(at, 1, MAX_RANKS, &at, &list[n++])) == 0 && *at == ',') at++;
    if (bad || *at != '\0') {
        free(list);
        return -1;
    }
    free((void *)out->then_ranks);
    out->then_ranks = list;
    out->then_count = n;
    return 0;
}

static int parse_seconds(const char *text, double *out) {
    char *end;
    const double value = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(value) || value < 0 || value > 1e6) return -1;
    *out = value;
    return 0;
}

enum { OPT_RESTART_RANKS = 256, OPT_MAX_RESTARTS, OPT_WATCH, OPT_GRACE, OPT_HELP, OPT_VERSION };

static const struct option table[] = {
    {"ranks", required_argument, NULL, 'n'},
    {"restart-ranks", required_argument, NULL, OPT_RESTART_RANKS},
    {"max-restarts", required_argument, NULL, OPT_MAX_RESTARTS},
    {"watch", required_argument, NULL, OPT_WATCH},
    {"grace", required_argument, NULL, OPT_GRACE},
    {"help", no_argument, NULL, OPT_HELP},
    {"version", no_argument, NULL, OPT_VERSION},
    {NULL, 0, NULL, 0},
};

static int parse_one(int opt, const char *value, run_options *out) {
    switch (opt) {
    case 'n':
        if (parse_count(value, 1, MAX_RANKS, &out->ranks) == 0) return 0;
        return usage("-n takes a number of ranks from 1 to 4096, not", value);
    case OPT_RESTART_RANKS:
        if (parse_list(value, out) == 0) return 0;
        return usage("--restart-ranks takes numbers of ranks, as 8 or 8,4, not", value);
    case OPT_MAX_RESTARTS:
        if (parse_count(value, 0, MAX_RESTARTS, &out->max_restarts) == 0) return 0;
        return usage("--max-restarts takes a number from 0, not", value);
    case OPT_GRACE:
        if (parse_seconds(value, &out->grace_s) == 0) return 0;
        return usage("--grace takes seconds, not", value);
    case OPT_WATCH:
        out->watch = value;
        return 0;
    default:
        return -1;
    }
}

/* What getopt_long stopped at: `missing`, an option without its value, else one that is not known.
 * A short one is in optopt, a long one is the argument that was read last. */
static int usage_option(int missing, const char *last) {
    char option[3] = {'-', (char)optopt, '\0'};
    const char *name = optopt > 0 && optopt < OPT_RESTART_RANKS ? option : last;
    return usage(missing ? "this option needs a value" : "unknown option", name);
}

run_parsed options_parse(int argc, char **argv, run_options *out) {
    const run_parsed misuse = {0, EXIT_USAGE}, done = {0, EXIT_OK};
    *out = (run_options){.max_restarts = 3, .grace_s = 60};
    int opt;
    opterr = 0;
    while ((opt = getopt_long(argc, argv, "+:n:", table, NULL)) != -1) {
        if (opt == OPT_HELP) {
            fputs(help, stdout);
            return done;
        }
        if (opt == OPT_VERSION) {
            printf("dcp-run %s\n", dcp_version());
            return done;
        }
        if (opt == ':' || opt == '?') {
            usage_option(opt == ':', argv[optind - 1]);
            return misuse;
        }
        if (parse_one(opt, optarg, out) != 0) return misuse;
    }
    out->program = argv + optind;
    if (out->ranks == 0 || !out->program[0]) {
        usage(out->ranks == 0 ? "-n N is needed" : "PROGRAM is missing", NULL);
        return misuse;
    }
    return (run_parsed){.go_on = 1};
}

void options_free(run_options *options) {
    free((void *)options->then_ranks);
    options->then_ranks = NULL;
}

int options_ranks(const run_options *options, int start) {
    if (start == 0 || options->then_count == 0) return options->ranks;
    const int i = start - 1 < options->then_count ? start - 1 : options->then_count - 1;
    return options->then_ranks[i];
}
