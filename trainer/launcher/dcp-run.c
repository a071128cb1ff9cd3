/* dcp-run: starts ranks, watches them, starts them again. One job exists at a time: the next starts
 * only when launcher_job_clear has proven that nothing of the last one is left. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/job.h"
#include "launcher/monitor.h"
#include "launcher/processes.h"
#include "launcher/told.h"
#include "programs/arguments.h"
#include "programs/program.h"
#include <dcp/store.h>

enum { MAX_RANKS = 4096, MAX_RESTARTS = 1000000, MAX_ARGUMENTS = 1 << 20, MAX_LENGTH = 131000 };

typedef struct run_options {
    int ranks;            /* of the first start */
    int *then_ranks;      /* ranks of restart 1, 2, ...; the last one repeats */
    int then_count;       /* 0: always `ranks` */
    int max_restarts;     /* in a row without a newer step */
    double grace_s;       /* from a request to stop until SIGKILL */
    const char *watch;    /* checkpoint directory; NULL: not known */
    char *const *program; /* PROGRAM ARGS, ended by NULL */
} run_options;

static const char about[] =
    "Common use:\n"
    "  dcp-run -n 4 -- dcp-train llama.json                            four ranks\n"
    "  dcp-run -n 4 --restart-ranks 8,4 -- dcp-train llama.json        after a failure eight\n"
    "\n"
    "Starts N ranks of PROGRAM through mpirun on this host, watches them, and starts them again\n"
    "when one fails.";
static const char notes[] =
    "SIGTERM, SIGINT: the ranks get SIGTERM, to save and end; at the second one, or after the\n"
    "grace period, SIGKILL. SIGUSR1 is passed on. stdin is closed to the ranks.\n"
    "After a failure, once this run has published a step in DIR, the ranks find DCP_RUN_RESTART=1\n"
    "in their environment: dcp-train then goes on from the newest step, whatever\n"
    "checkpoint.resume and checkpoint.overwrite say.\n"
    "A reason that the ranks write to the file $DCP_RUN_REASON says that a restart would fail in\n"
    "the same way (dcp-train: a full disk at the end, a loss that diverges): one is tried.";
static const char statuses[] =
    "Exit status: 0 done; 1, 2, 143 (stopped by SIGTERM) as PROGRAM gave it, without a restart;\n"
    "2 wrong usage; 3 failure with no restart left.";

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

/* Ranks of start number `start`, from 0. */
static int ranks_of_start(const run_options *options, int start) {
    if (start == 0 || options->then_count == 0) return options->ranks;
    const int i = start - 1 < options->then_count ? start - 1 : options->then_count - 1;
    return options->then_ranks[i];
}

/* Fills in what the options' arguments say; NULL: not given. */
static int read_values(const char *ranks, const char *then, const char *restarts, const char *grace,
                       run_options *out) {
    uint64_t count = 0;
    if (!ranks) return program_fail(PROGRAM_USAGE, "-n N is needed; try 'dcp-run --help'");
    if (program_count_parse("-n", ranks, 1, MAX_RANKS, &count) != 0) return PROGRAM_USAGE;
    out->ranks = (int)count;
    if (restarts && program_count_parse("--max-restarts", restarts, 0, MAX_RESTARTS, &count) != 0)
        return PROGRAM_USAGE;
    if (restarts) out->max_restarts = (int)count;
    if (grace && parse_seconds(grace, &out->grace_s) != 0)
        return program_fail(PROGRAM_USAGE, "--grace takes seconds, not: %s", grace);
    if (then && parse_list(then, out) != 0)
        return program_fail(PROGRAM_USAGE,
                            "--restart-ranks takes numbers of ranks, as 8 or 8,4, not: %s", then);
    return -1;
}

/* -1 to go on, or the status to exit with. */
static int read_command_line(int argc, char **argv, run_options *out) {
    const char *ranks = NULL, *then = NULL, *restarts = NULL, *grace = NULL;
    *out = (run_options){.max_restarts = 3, .grace_s = 60};
    const program_option table[] = {
        {"ranks", "N", "ranks of the first start", &ranks, NULL, 'n'},
        PROGRAM_VALUE("restart-ranks", "LIST",
                      "ranks of the restarts, as 8 or 8,4,2: one a restart, the\n"
                      "                           last one repeats (default: N)",
                      &then),
        PROGRAM_VALUE("max-restarts", "R",
                      "restarts in a row without a newer step in DIR (default: 3)", &restarts),
        PROGRAM_VALUE("watch", "DIR",
                      "checkpoint directory (default: checkpoint.dir of the\n"
                      "                           CONFIG.json that dcp-train is given)",
                      &out->watch),
        PROGRAM_VALUE("grace", "SECONDS", "how long ranks may take to save and end (default: 60)",
                      &grace),
        {0},
    };
    const program_command command = {.name = "dcp-run",
                                     .usage = "-n N [options] -- PROGRAM ARGS",
                                     .about = about,
                                     .options = table,
                                     .notes = notes,
                                     .statuses = statuses,
                                     .ends_at_first = 1};
    char **args;
    int n, status = program_arguments_parse(&command, argc, argv, 0, MAX_ARGUMENTS, &args, &n);
    if (status >= 0) return status;
    out->program = args;
    if (ranks && n == 0)
        return program_fail(PROGRAM_USAGE, "PROGRAM is missing; try 'dcp-run --help'");
    return read_values(ranks, then, restarts, grace, out);
}

/* Names the run, so that a rank that starts afresh after a restart knows the lines of metrics that
 * the start before it has written. */
static void name_run(void) {
    uint64_t number = 0;
    char text[17];
    if (getrandom(&number, sizeof number, 0) < 0) number = (uint64_t)getpid();
    snprintf(text, sizeof text, "%016" PRIx64, number);
    setenv("DCP_RUN_NAME", text, 1);
}

/* Restarts are counted until the run has published a step newer than those that it published
 * before: one that makes progress may fail any number of times, one that does not ends after `max`,
 * also where it starts over each time. Steps of earlier runs, which a run may set aside and publish
 * again under the same numbers, do not count: a step is its folder, not its number. */

/* A complete step. Inode and time tell it from other steps of the same number. */
typedef struct published_step {
    int64_t step; /* -1: none */
    ino_t inode;
    struct timespec made;
} published_step;

typedef struct restart_budget {
    const char *dir; /* the checkpoint directory; NULL: not known, nothing counts as progress */
    int max;
    int used;               /* since the last newer step */
    published_step *before; /* complete steps that the first start found */
    size_t n_before;
    int64_t published; /* the newest step by a start of ours, -1: none */
} restart_budget;

/* The folder behind a listed step; step -1 where it is not complete, or is gone by now. */
static published_step identify(const char *dir, const dcp_step *listed) {
    const published_step none = {.step = -1};
    char path[PATH_MAX];
    struct stat st;
    const int n = snprintf(path, sizeof path, "%s/step-%08" PRIu64, dir, listed->step);
    if (listed->kind != DCP_STEP_COMPLETE || n < 0 || (size_t)n >= sizeof path) return none;
    if (stat(path, &st) != 0) return none;
    return (published_step){(int64_t)listed->step, st.st_ino, st.st_mtim};
}

/* The complete steps of the directory, freed by the caller; NULL: none. */
static published_step *list_steps(const char *dir, size_t *n_out) {
    dcp_step *listed = NULL;
    size_t n = 0;
    *n_out = 0;
    if (!dir || dcp_steps_list(dir, &listed, &n, NULL) != DCP_OK) return NULL;
    published_step *steps = calloc(n + 1, sizeof *steps);
    for (size_t i = 0; i < n && steps; i++) {
        steps[*n_out] = identify(dir, &listed[i]);
        if (steps[*n_out].step >= 0) (*n_out)++;
    }
    free(listed);
    return steps;
}

static published_step newest_of(const char *dir) {
    size_t n;
    published_step *steps = list_steps(dir, &n), newest = {.step = -1};
    for (size_t i = 0; i < n; i++)
        if (steps[i].step > newest.step) newest = steps[i];
    free(steps);
    return newest;
}

static int was_there(const restart_budget *budget, const published_step *step) {
    for (size_t i = 0; i < budget->n_before; i++) {
        const published_step *b = &budget->before[i];
        if (b->step == step->step && b->inode == step->inode &&
            b->made.tv_sec == step->made.tv_sec && b->made.tv_nsec == step->made.tv_nsec)
            return 1;
    }
    return 0;
}

/* Takes note of what is there before the first start. */
static void budget_begin(restart_budget *budget, const char *dir, int max) {
    *budget = (restart_budget){.dir = dir, .max = max, .published = -1};
    budget->before = list_steps(dir, &budget->n_before);
}

static void budget_end(restart_budget *budget) { free(budget->before); }

/* The newest complete step of the directory; -1 where there is none. */
static int64_t newest_step(const restart_budget *budget) { return newest_of(budget->dir).step; }

/* Called after a failure: whether another start is due, which is then counted. */
static int restart_is_allowed(restart_budget *budget) {
    const published_step newest = newest_of(budget->dir);
    if (newest.step > budget->published && !was_there(budget, &newest)) {
        budget->published = newest.step;
        budget->used = 0;
    }
    if (budget->used >= budget->max) return 0;
    budget->used++;
    return 1;
}

/* Whether a start has published a step, from which the next one should go on. */
static int restart_goes_on(const restart_budget *budget) { return budget->published >= 0; }

/* checkpoint.dir of the file; dcp-train's default where it has none. */
static char *dir_of_config(const char *path) {
    json_t *config = json_load_file(path, 0, NULL);
    if (!config) return NULL;
    json_t *checkpoint = json_object_get(config, "checkpoint");
    const char *dir = json_string_value(json_object_get(checkpoint, "dir"));
    char *found = strdup(dir ? dir : "ckpt");
    json_decref(config);
    return found;
}

/* An override's value: JSON where it is a JSON string, else the characters themselves. */
static char *dir_of_override(const char *value) {
    json_t *parsed = json_loads(value, JSON_DECODE_ANY, NULL);
    char *dir = strdup(json_is_string(parsed) ? json_string_value(parsed) : value);
    json_decref(parsed);
    return dir;
}

/* The checkpoint directory that `dcp-train CONFIG.json [key.path=value ...]` would use, freed by
 * the caller; NULL where `program` is another one, or the file is none that dcp-train would take.
 */
static char *directory_of(char *const *program) {
    static const char override[] = "checkpoint.dir=";
    const char *slash = strrchr(program[0], '/');
    if (strcmp(slash ? slash + 1 : program[0], "dcp-train") != 0) return NULL;

    char *dir = NULL;
    for (char *const *arg = program + 1; *arg; arg++) {
        char *found = NULL;
        if (strncmp(*arg, override, sizeof override - 1) == 0)
            found = dir_of_override(*arg + sizeof override - 1);
        else if (!dir && !strchr(*arg, '=') && (*arg)[0] != '-')
            found = dir_of_config(*arg);
        if (!found) continue;
        free(dir);
        dir = found;
    }
    return dir;
}

/* Whether PROGRAM can be run as execvp would find it. */
static int program_found(const char *program) {
    if (strchr(program, '/')) return access(program, X_OK) == 0;
    const char *path = getenv("PATH");
    for (const char *at = path ? path : "/usr/bin:/bin"; at;) {
        const size_t len = strcspn(at, ":");
        char full[4096];
        snprintf(full, sizeof full, "%.*s/%s", len ? (int)len : 1, len ? at : ".", program);
        if (access(full, X_OK) == 0) return 1;
        at = at[len] ? at + len + 1 : NULL;
    }
    return 0;
}

/* mpirun hands all arguments on in one variable, which exec takes only so long. */
static int arguments_fit(char *const *program) {
    size_t length = 0;
    for (char *const *arg = program + 1; *arg; arg++) length += strlen(*arg) + 1;
    return length <= MAX_LENGTH;
}

static void report_failure(const launcher_job *job, int start) {
    fprintf(stderr, "dcp-run: start %d failed with status %d", start, job->status);
    if (job->status > 128) fprintf(stderr, " (%s)", strsignal(job->status - 128));
    if (job->status > 128 && job->seen == job->ranks && job->first_gone >= 0)
        fprintf(stderr, "; rank %d, pid %d, ended first", job->first_gone,
                (int)job->members[job->first_gone].pid);
    fputc('\n', stderr);
}

static void report_restart(const restart_budget *budget, int ranks) {
    const int64_t newest = newest_step(budget);
    fprintf(stderr, "dcp-run: restart %d of %d, on %d %s", budget->used, budget->max, ranks,
            ranks == 1 ? "rank" : "ranks");
    if (newest >= 0) fprintf(stderr, ", newest complete step %lld", (long long)newest);
    fputc('\n', stderr);
}

/* Statuses that a restart would not change. */
static int is_final(int status) {
    return status == PROGRAM_DONE || status == PROGRAM_DIFFERS || status == PROGRAM_USAGE ||
           status == PROGRAM_STOPPED;
}

/* The exit status of a start, after a message where it failed. mpirun has statuses of its own, and
 * so has an MPI_Init that fails; these are failures like others. */
static int own_status(const launcher_job *job, const launcher_result *result,
                      const launcher_told *told, int start) {
    const int status = job->status;
    if (!is_final(status)) report_failure(job, start);
    if (result->killed || !is_final(status)) return PROGRAM_FAILED;
    if (status == PROGRAM_DONE || result->stop_asked) return status;
    if (!job->launched || !launcher_told_has(told, status)) {
        fprintf(stderr, "dcp-run: start %d failed with status %d, which is %s own\n", start, status,
                job->launched ? "MPI's" : "mpirun's");
        return PROGRAM_FAILED;
    }
    if (status != PROGRAM_STOPPED)
        fprintf(stderr, "dcp-run: start %d ended with status %d, which no restart would change\n",
                start, status);
    return status;
}

/* Start number `start`, from 0, watched to its end and cleared away; sets *stop when a signal asked
 * for the end. */
static int run_once(const run_options *options, const launcher_signals *signals, int start,
                    int go_on, launcher_told *told, int *stop) {
    launcher_job job;
    const int ranks = ranks_of_start(options, start);
    if (launcher_job_start(&job, ranks, options->program, &signals->before, go_on) != 0) {
        launcher_told_take(told);
        return PROGRAM_FAILED;
    }
    const launcher_result result = launcher_monitor_job(&job, signals, start + 1, options->grace_s);
    launcher_told_take(told);
    const int status = own_status(&job, &result, told, start + 1);
    *stop = result.stop_asked;
    if (launcher_job_clear(&job, options->grace_s) == 0) return status;
    fprintf(stderr,
            "dcp-run: giving up: processes of start %d live on, and may still write; end them "
            "before another start\n",
            start + 1);
    *stop = 1;
    return PROGRAM_FAILED;
}

/* Whether to start again after a failure; says why not. A reason that repeats gets one restart, in
 * case somebody has removed it. */
static int is_worth_another(restart_budget *budget, const launcher_told *told) {
    const int before = budget->used;
    if (told->is_final) {
        fprintf(stderr, "dcp-run: giving up: %s\n", told->reason);
        return 0;
    }
    const int allowed = restart_is_allowed(budget);
    if (told->repeats && budget->used > 1) {
        fprintf(stderr,
                "dcp-run: giving up: restart %d failed like the start before it, and another one "
                "would, too: %s\n",
                before, told->reason);
        return 0;
    }
    if (!allowed)
        fprintf(stderr, "dcp-run: giving up after %d %s without a newer step\n", budget->used,
                budget->used == 1 ? "restart" : "restarts");
    return allowed;
}

/* What all ranks of a start find in their environment. At a restart nothing of the earlier start is
 * left: its stores may be taken over where the file system cannot tell that they are free. */
static void set_variables(const run_options *options, int start) {
    char grace[32];
    snprintf(grace, sizeof grace, "%g", options->grace_s);
    setenv("DCP_RUN_GRACE", grace, 1);
    if (start > 0)
        setenv("DCP_RUN_TAKE_OVER", "1", 1);
    else
        unsetenv("DCP_RUN_TAKE_OVER");
}

static int supervise(const run_options *options, const launcher_signals *signals,
                     restart_budget *budget, launcher_told *told) {
    for (int start = 0;; start++) {
        int stop = 0;
        set_variables(options, start);
        const int status = run_once(options, signals, start, restart_goes_on(budget), told, &stop);
        if (is_final(status)) return status;
        if (stop) return PROGRAM_FAILED;
        if (launcher_stop_pending(signals)) return PROGRAM_STOPPED;
        if (!is_worth_another(budget, told)) return PROGRAM_FAILED;
        report_restart(budget, ranks_of_start(options, start + 1));
    }
}

/* A standard stream that is closed would be the next file that is opened, and get our messages. */
static void open_standard_streams(void) {
    int fd;
    do fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0) close(fd);
}

int main(int argc, char **argv) {
    run_options options;
    int status = read_command_line(argc, argv, &options);
    if (status >= 0) goto free_options;
    open_standard_streams();
    if (!launcher_processes_known()) {
        status = program_fail(PROGRAM_FAILED,
                              "/proc shows other processes than ours: mount one for this PID "
                              "namespace, as unshare --mount-proc does");
        goto free_options;
    }
    if (!program_found(options.program[0])) {
        fprintf(stderr, "dcp-run: cannot run %s: no such program\n", options.program[0]);
        status = PROGRAM_USAGE;
        goto free_options;
    }
    if (!arguments_fit(options.program)) {
        status = program_fail(PROGRAM_USAGE,
                              "the arguments of %s have more than %d characters, which mpirun does "
                              "not take; hand them over in a file",
                              options.program[0], MAX_LENGTH);
        goto free_options;
    }

    launcher_signals signals;
    if (launcher_signals_open(&signals) != 0) {
        fprintf(stderr, "dcp-run: cannot watch signals: %s\n", strerror(errno));
        status = PROGRAM_FAILED;
        goto free_options;
    }
    launcher_folders_sweep();
    char *dir = options.watch ? strdup(options.watch) : directory_of(options.program);
    restart_budget budget;
    budget_begin(&budget, dir, options.max_restarts);
    launcher_told told;
    launcher_told_open(&told);
    name_run();
    status = supervise(&options, &signals, &budget, &told);
    launcher_told_close(&told);
    budget_end(&budget);
    free(dir);
    close(signals.fd);
free_options:
    free(options.then_ranks);
    return status;
}
