/* dcp-run: starts ranks, watches them, starts them again. One job exists at a time: the next starts
 * only when job_clear has proven that nothing of the last one is left. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/job.h"
#include "launcher/monitor.h"
#include "launcher/options.h"
#include "launcher/reason.h"
#include "launcher/restart.h"
#include "stdout.h"

enum { EXIT_DONE = 0, EXIT_DIFFERS = 1, EXIT_MISUSE = 2, EXIT_FAILED = 3, EXIT_STOPPED = 143 };

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

static void report_failure(const run_job *job, int start) {
    fprintf(stderr, "dcp-run: start %d failed with status %d", start, job->status);
    if (job->status > 128) fprintf(stderr, " (%s)", strsignal(job->status - 128));
    if (job->status > 128 && job->seen == job->ranks && job->first_gone >= 0)
        fprintf(stderr, "; rank %d, pid %d, ended first", job->first_gone,
                (int)job->members[job->first_gone].pid);
    fputc('\n', stderr);
}

static void report_restart(const restart_budget *budget, int ranks) {
    const int64_t newest = restart_newest_step(budget);
    fprintf(stderr, "dcp-run: restart %d of %d, on %d %s", budget->used, budget->max, ranks,
            ranks == 1 ? "rank" : "ranks");
    if (newest >= 0) fprintf(stderr, ", newest complete step %lld", (long long)newest);
    fputc('\n', stderr);
}

/* Statuses that a restart would not change. */
static int is_final(int status) {
    return status == EXIT_DONE || status == EXIT_DIFFERS || status == EXIT_MISUSE ||
           status == EXIT_STOPPED;
}

/* Start number `start`, from 0, watched to its end and cleared away; sets *stop when a signal asked
 * for the end. */
static int run_once(const run_options *options, const watch_signals *signals, int start, int go_on,
                    int *stop) {
    run_job job;
    const int ranks = options_ranks(options, start);
    if (job_start(&job, ranks, options->program, &signals->before, go_on) != 0) return EXIT_FAILED;
    const watch_result result = watch_job(&job, signals, start + 1, options->grace_s);
    const int status = result.killed ? EXIT_FAILED : job.status;
    if (!is_final(job.status)) report_failure(&job, start + 1);
    if (job.status == EXIT_DIFFERS || job.status == EXIT_MISUSE)
        fprintf(stderr, "dcp-run: start %d ended with status %d, which no restart would change\n",
                start + 1, job.status);
    job_clear(&job);
    *stop = result.stop_asked;
    return status;
}

/* Whether to start again after a failure; says why not. A reason that lasts gets one restart, in
 * case that somebody has removed it. */
static int is_worth_another(restart_budget *budget, run_reason *reason) {
    const int repeats = reason_repeats(reason), before = budget->used;
    const int allowed = restart_allowed(budget);
    if (repeats && budget->used > 1) {
        fprintf(stderr,
                "dcp-run: giving up: restart %d failed like the start before it, and another one "
                "would, too: %s\n",
                before, reason->last);
        return 0;
    }
    if (!allowed)
        fprintf(stderr, "dcp-run: giving up after %d %s without a newer step\n", budget->used,
                budget->used == 1 ? "restart" : "restarts");
    return allowed;
}

static int supervise(const run_options *options, const watch_signals *signals,
                     restart_budget *budget, run_reason *reason) {
    for (int start = 0;; start++) {
        int stop = 0;
        const int status = run_once(options, signals, start, restart_goes_on(budget), &stop);
        if (is_final(status)) return status;
        if (stop) return EXIT_FAILED;
        if (watch_stop_pending(signals)) return EXIT_STOPPED;
        if (!is_worth_another(budget, reason)) return EXIT_FAILED;
        report_restart(budget, options_ranks(options, start + 1));
    }
}

int main(int argc, char **argv) {
    run_options options;
    const run_parsed parsed = options_parse(argc, argv, &options);
    int status = parsed.status;
    if (!parsed.go_on) goto free_options;
    if (!program_found(options.program[0])) {
        fprintf(stderr, "dcp-run: cannot run %s: no such program\n", options.program[0]);
        status = EXIT_MISUSE;
        goto free_options;
    }

    watch_signals signals;
    if (watch_signals_open(&signals) != 0) {
        fprintf(stderr, "dcp-run: cannot watch signals: %s\n", strerror(errno));
        status = EXIT_FAILED;
        goto free_options;
    }
    char *dir = options.watch ? strdup(options.watch) : restart_dir_of(options.program);
    restart_budget budget;
    restart_begin(&budget, dir, options.max_restarts);
    run_reason reason;
    reason_open(&reason);
    status = supervise(&options, &signals, &budget, &reason);
    reason_close(&reason);
    restart_end(&budget);
    free(dir);
    close(signals.fd);
free_options:
    options_free(&options);
    return stdout_end("dcp-run", status);
}
