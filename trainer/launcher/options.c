#include "launcher/options.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/family.h"
#include "programs/arguments.h"
#include "programs/program.h"

enum { MAX_RANKS = 4096, MAX_RESTARTS = 1000000, MAX_ARGUMENTS = 1 << 20, MAX_LENGTH = 131000 };

static const char usage[] = "-n N [options] -- PROGRAM ARGS\n"
                            "ctl PATH status|save|resize N|stop";
static const char about[] =
    "Common use:\n"
    "  dcp-run -n 4 -- dcp-train llama.json                            four ranks\n"
    "  dcp-run -n 16 --hosts hosts -- dcp-train llama.json             ranks on several hosts\n"
    "  dcp-run -n 16 --hosts hosts --on-failure shrink --min 8 -- dcp-train llama.json\n"
    "  dcp-run ctl ckpt/.control resize 8                              another number of ranks\n"
    "\n"
    "Starts N ranks of PROGRAM through mpirun, on this host, on the hosts of a file or of a Slurm\n"
    "job, watches them, and starts them again when one fails. 'dcp-run ctl --help' says how to\n"
    "query a running dcp-run, and to request a save, another number of ranks, or its end.";
static const char notes[] =
    "SIGTERM, SIGINT: the ranks get SIGTERM, to save and end; at the second one, or after the\n"
    "grace period, SIGKILL. SIGUSR1 is passed on. stdin is closed to the ranks.\n"
    "SIGUSR2, and SIGTERM in a Slurm job that is preempted: the ranks save and end, and dcp-run\n"
    "ends with 75: it is to be run again.\n"
    "After a failure, once this run has published a step in DIR, the ranks find DCP_RUN_RESTART=1\n"
    "in their environment: dcp-train then continues from the newest step, and ignores\n"
    "checkpoint.resume and checkpoint.overwrite.\n"
    "The ranks write a reason to the file $DCP_RUN_REASON if a restart would fail in the same\n"
    "way (dcp-train: a full disk at the end, a loss that diverges): then only one is tried.";
static const char statuses[] =
    "Exit status: 0 done; 1, 2, 143 (stopped by SIGTERM) of PROGRAM, without a restart;\n"
    "2 wrong usage; 3 failure with no restart left; 75 saved, to be run again.";

/* Parses a whole number within [min, max]; sets *after to what follows it. */
static int parse_int(const char *text, long min, long max, const char **after, int *out) {
    char *end;
    errno = 0;
    const long value = strtol(text, &end, 10);
    if (end == text || errno != 0 || value < min || value > max) return -1;
    *after = end;
    *out = (int)value;
    return 0;
}

static int parse_list(const char *text, launcher_options *out) {
    int *list = calloc(strlen(text) + 1, sizeof *list);
    if (!list) return -1;
    int n = 0, bad;
    const char *at = text;
    while ((bad = parse_int(at, 1, MAX_RANKS, &at, &list[n++])) == 0 && *at == ',') at++;
    if (bad || *at != '\0') {
        free(list);
        return -1;
    }
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

/* Returns true if the arguments fit into one variable, in which mpirun passes all of them on. */
static bool arguments_fit(char *const *program) {
    size_t length = 0;
    for (char *const *arg = program + 1; *arg; arg++) length += strlen(*arg) + 1;
    return length <= MAX_LENGTH;
}

/* Fills in the numbers that were given. Returns -1, or an exit status after a message. */
static int read_counts(const char *const given[4], launcher_options *out) {
    static const char *const names[] = {"-n", "--min", "--max", "--max-restarts"};
    int *const values[] = {&out->cluster.ranks, &out->cluster.min, &out->cluster.max,
                           &out->max_restarts};
    for (size_t i = 0; i < 4; i++) {
        uint64_t count = 0;
        const bool is_restarts = values[i] == &out->max_restarts;
        if (given[i] && program_count_parse(names[i], given[i], is_restarts ? 0 : 1,
                                            is_restarts ? MAX_RESTARTS : MAX_RANKS, &count) != 0)
            return PROGRAM_USAGE;
        if (given[i]) *values[i] = (int)count;
    }
    return -1;
}

static int read_on_failure(const char *text, launcher_options *out) {
    static const char *const names[] = {"same", "shrink", "fail"};
    for (int i = 0; text && i < 3; i++)
        if (strcmp(text, names[i]) == 0) {
            out->cluster.on_failure = (launcher_on_failure)i;
            return -1;
        }
    if (!text) return -1;
    return program_fail(PROGRAM_USAGE, "--on-failure takes same, shrink or fail, not: %s", text);
}

static int check_together(const launcher_options *o) {
    if (o->then_count && o->cluster.on_failure != LAUNCHER_ON_FAILURE_SAME)
        return program_fail(PROGRAM_USAGE,
                            "--restart-ranks says how many ranks a restart has, and so does "
                            "--on-failure: give one of them");
    for (int i = 0; i < o->then_count; i++) {
        const launcher_cluster_options *c = &o->cluster;
        if (o->then_ranks[i] < c->min || (c->max && o->then_ranks[i] > c->max))
            return program_fail(PROGRAM_USAGE, "--restart-ranks %d is not within --min and --max",
                                o->then_ranks[i]);
    }
    if (!launcher_program_exists(o->program[0]))
        return program_fail(PROGRAM_USAGE, "cannot run %s: no such program", o->program[0]);
    if (!arguments_fit(o->program))
        return program_fail(PROGRAM_USAGE,
                            "the arguments of %s have more than %d characters, which mpirun does "
                            "not accept; pass them in a file",
                            o->program[0], MAX_LENGTH);
    return -1;
}

/* Arguments as given; NULL: not given. */
typedef struct given_options {
    const char *counts[4]; /* as in read_counts */
    const char *then, *grace, *stall, *failure;
} given_options;

static int read_given(const given_options *given, launcher_options *out) {
    int status = read_counts(given->counts, out);
    if (status >= 0) return status;
    if (given->grace && parse_seconds(given->grace, &out->grace_s) != 0)
        return program_fail(PROGRAM_USAGE, "--grace takes seconds, not: %s", given->grace);
    if (given->stall && (parse_seconds(given->stall, &out->stall_s) != 0 || out->stall_s == 0))
        return program_fail(PROGRAM_USAGE, "--stall takes seconds above 0, not: %s", given->stall);
    if (given->then && parse_list(given->then, out) != 0)
        return program_fail(PROGRAM_USAGE,
                            "--restart-ranks takes numbers of ranks, such as 8 or 8,4, not: %s",
                            given->then);
    return read_on_failure(given->failure, out);
}

static int read_by_table(const program_option *table, const given_options *given, int argc,
                         char **argv, launcher_options *out) {
    const program_command command = {.name = "dcp-run",
                                     .usage = usage,
                                     .about = about,
                                     .options = table,
                                     .notes = notes,
                                     .statuses = statuses,
                                     .ends_at_first = true};
    char **args;
    int n, status = program_arguments_parse(&command, argc, argv, 0, MAX_ARGUMENTS, &args, &n);
    if (status >= 0) return status;
    out->program = args;
    if (given->counts[0] && n == 0)
        return program_fail(PROGRAM_USAGE, "PROGRAM is missing; try 'dcp-run --help'");
    if (!given->counts[0])
        return program_fail(PROGRAM_USAGE, "-n N is needed; try 'dcp-run --help'");
    status = read_given(given, out);
    return status >= 0 ? status : check_together(out);
}

int launcher_options_read(int argc, char **argv, launcher_options *out) {
    given_options given = {.then = NULL};
    *out = (launcher_options){.max_restarts = 3, .grace_s = 60};
    const program_option table[] = {
        {"ranks", "N", "ranks of the first start", &given.counts[0], NULL, 'n'},
        PROGRAM_VALUE(
            "hosts", "FILE",
            "host file in Open MPI's format (NAME slots=8), read again\n"
            "                           every second (default: this host, or the nodes of\n"
            "                           the Slurm job)",
            &out->cluster.hosts_file),
        PROGRAM_VALUE("on-failure", "same|shrink|fail",
                      "\n                           same: as many ranks again (default); shrink: "
                      "without the\n                           ranks or hosts that failed; fail: "
                      "end",
                      &given.failure),
        PROGRAM_VALUE("min", "M", "fewest ranks to shrink to (default: 1)", &given.counts[1]),
        PROGRAM_VALUE("max", "M", "most ranks, for hosts that are added to FILE (default: N)",
                      &given.counts[2]),
        PROGRAM_VALUE("restart-ranks", "LIST",
                      "ranks of each restart, such as 8 or 8,4,2; the\n"
                      "                           last one repeats (default: N)",
                      &given.then),
        PROGRAM_VALUE("max-restarts", "R", "restarts in a row without a newer step (default: 3)",
                      &given.counts[3]),
        PROGRAM_VALUE("stall", "SECONDS",
                      "fail if dcp-train's ranks make no progress for so long\n"
                      "                           (default: 10 times the slowest step, at least "
                      "300)",
                      &given.stall),
        PROGRAM_VALUE("watch", "DIR",
                      "checkpoint directory (default: checkpoint.dir of the\n"
                      "                           CONFIG.json that dcp-train is given)",
                      &out->watch),
        PROGRAM_VALUE("control", "PATH",
                      "socket for 'dcp-run ctl' (default: .control in the\n"
                      "                           checkpoint directory)",
                      &out->control),
        PROGRAM_VALUE("logs", "DIR",
                      "one log per rank in DIR; lines on the console get time and rank",
                      &out->logs),
        PROGRAM_VALUE("grace", "SECONDS", "how long ranks may take to save and end (default: 60)",
                      &given.grace),
        {0},
    };
    return read_by_table(table, &given, argc, argv, out);
}

void launcher_options_free(launcher_options *options) { free(options->then_ranks); }
