/* The starts of a run, one after the other. One job exists at a time: the next starts only when
 * launcher_job_clear has proven that nothing of the last one is left. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <unistd.h>

#include "launcher/agent/folders.h"
#include "launcher/agent/processes.h"
#include "launcher/agent/remote.h"
#include "launcher/budget.h"
#include "launcher/control/control.h"
#include "launcher/monitor.h"
#include "launcher/mpirun.h"
#include "launcher/probe.h"
#include "launcher/rank_program.h"
#include "launcher/run.h"
#include "programs/program.h"

/* The starts of a run, one after the other. One job exists at a time: the next starts only when
 * launcher_job_clear has proven that nothing of the last one is left. */

/* How a start has ended. */
typedef struct start_end {
    int status;  /* PROGRAM_... */
    int stop;    /* the run ends, whatever the status is */
    int requeue; /* to be run again by a scheduler */
    int planned; /* it was asked to, so that other ranks go on */
} start_end;

static const char *host_of(const launcher_job *job, int rank) {
    return rank >= 0 && rank < job->ranks ? job->members[rank].host : NULL;
}

/* Whether the rank that ended first is the one to look at: it was killed, or ended by exit() where
 * it should have said how. */
static int is_first_to_blame(const launcher_job *job, const launcher_told *told) {
    return job->status > 128 || job->mpirun_lives || job->dead >= 0 || !told->tells;
}

static void report_failure(const launcher_job *job, const launcher_result *result,
                           const launcher_told *told, int start) {
    const int first = job->dead >= 0 ? job->dead : job->first_gone;
    if (job->lost || result->stalled) return; /* which has been said */
    fprintf(stderr, "dcp-run: start %d failed", start);
    if (result->no_answer && !job->launched) fputs(", and hosts have not answered", stderr);
    if (!job->mpirun_lives) fprintf(stderr, " with status %d", job->status);
    if (!job->mpirun_lives && job->status > 128 && sigabbrev_np(job->status - 128))
        fprintf(stderr, " (%s)", strsignal(job->status - 128));
    if (is_first_to_blame(job, told) && first >= 0 && job->seen == job->ranks) {
        const char *host = host_of(job, first);
        fprintf(stderr, "; rank %d, pid %d%s%s, ended %s", first, (int)job->members[first].pid,
                host ? ", on " : "", host ? host : "",
                job->dead >= 0 && job->status < 128 ? "without saying how" : "first");
    }
    fputc('\n', stderr);
}

/* Statuses that a restart would not change. */
static int is_final(int status) {
    return status == PROGRAM_DONE || status == PROGRAM_DIFFERS || status == PROGRAM_USAGE ||
           status == PROGRAM_STOPPED || status == PROGRAM_REQUEUE;
}

/* Whether mpirun has ended, without a rank, because of its options. */
static int is_misused(const launcher_job *job) {
    return !job->mpirun_lives && job->seen == 0 && job->status != PROGRAM_DONE &&
           launcher_mpirun_refuses(job->command);
}

static int refuse_options(const launcher_job *job, int start) {
    fprintf(stderr,
            "dcp-run: start %d failed with status %d: mpirun does not take, as it says:", start,
            job->status);
    for (char *const *word = job->command; *word; word++) fprintf(stderr, " %s", *word);
    fputc('\n', stderr);
    return PROGRAM_USAGE;
}

/* The exit status of a start, after a message where it failed. mpirun has statuses of its own, and
 * so has an MPI_Init that fails; these are failures like others. So is status 1 of programs that
 * tell nothing: any exception of Python ends with it. */
static int own_status(const launcher_job *job, const launcher_result *result,
                      const launcher_told *told, int start) {
    const int is_exception = job->status == PROGRAM_DIFFERS && job->launched && !told->tells;
    const int status = is_exception ? PROGRAM_FAILED : job->status;
    if (launcher_job_is_done(job)) return PROGRAM_DONE;
    if (is_misused(job)) return refuse_options(job, start);
    const int ends_as_asked = status == PROGRAM_STOPPED && (result->stop_asked || result->planned);
    if (ends_as_asked && !result->killed) return status;
    const int failed = job->mpirun_lives || job->dead >= 0 || job->lost || result->stalled ||
                       status == PROGRAM_DONE; /* which is not believed */
    if (failed || !is_final(status)) report_failure(job, result, told, start);
    if (result->killed || failed || !is_final(status)) return PROGRAM_FAILED;
    if (result->stop_asked) return status;
    if (!job->launched || !launcher_told_has(told, status)) {
        fprintf(stderr, "dcp-run: start %d failed with status %d, which is %s own\n", start, status,
                job->launched ? "MPI's" : "mpirun's");
        return PROGRAM_FAILED;
    }
    return status;
}

static void note_missing(void *ctx, const char *host) {
    launcher_probe *missing = ctx;
    if (missing->n < LAUNCHER_PROBED) missing->hosts[missing->n++] = host;
}

/* Tells who failed, so that the next start can do without. A host whose agent is gone may still
 * answer: then it gets another chance. */
static void blame(launcher_run *run, const launcher_job *job, const launcher_result *result,
                  const launcher_probe *missing) {
    const launcher_probe *lost = &job->lost_answers;
    for (size_t i = 0; i < missing->n; i++)
        if (!missing->reached[i]) launcher_cluster_host_lost(run->cluster, missing->hosts[i]);
    if (lost->n && !lost->reached[0])
        launcher_cluster_host_lost(run->cluster, job->lost);
    else if (lost->n)
        launcher_cluster_rank_failed(run->cluster, job->lost);
    if (missing->n || lost->n) return;
    const int rank = result->stalled  ? result->behind
                     : job->dead >= 0 ? job->dead
                                      : job->first_gone;
    if (rank >= 0) launcher_cluster_rank_failed(run->cluster, host_of(job, rank));
}

static void set_number(const char *name, int value) {
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

/* What all ranks of a start find in their environment. At a restart nothing of the earlier start is
 * left: its stores may be taken over where the file system cannot tell that they are free. */
static void set_variables(launcher_run *run, const launcher_placement *placement) {
    char grace[32];
    set_number("DCP_RUN_RANKS", placement->ranks);
    snprintf(grace, sizeof grace, "%g", run->options->grace_s);
    setenv("DCP_RUN_GRACE", grace, 1);
    set_number("TORCHELASTIC_RESTART_COUNT", run->start - 1);
    set_number("TORCHELASTIC_MAX_RESTARTS", run->budget.max);
    setenv("DCP_RUN_FAILED", run->told.reason, 1);
    if (run->start > 1)
        setenv("DCP_RUN_TAKE_OVER", "1", 1);
    else
        unsetenv("DCP_RUN_TAKE_OVER");
    if (run->start > 1 && launcher_budget_goes_on(&run->budget))
        setenv("DCP_RUN_RESTART", "1", 1);
    else
        unsetenv("DCP_RUN_RESTART");
}

/* The job's end: what is left is cleared away, and judged. */
static start_end end_job(launcher_run *run, launcher_job *job, const launcher_result *result) {
    start_end end = {
        .stop = result->stop_asked, .requeue = result->requeue, .planned = result->planned};
    launcher_probe missing = {.family = run->family};
    if (result->no_answer) launcher_job_visit_missing(job, note_missing, &missing);
    const double over_at = program_now_s();
    launcher_probe_begin(&missing, LAUNCHER_PROBE_S);
    const int left = launcher_job_clear(job, run->options->grace_s);
    launcher_probe_finish(&missing);
    launcher_probe_finish(&job->lost_answers);
    launcher_output_close(run->output);
    run->output = NULL;
    if (left != 0) {
        fprintf(stderr,
                "dcp-run: giving up: processes of start %d live on, and may still write; end them "
                "before another start\n",
                run->start);
        end.stop = 1;
        end.status = PROGRAM_FAILED;
        return end;
    }
    launcher_told_judge(&run->told);
    launcher_recovery_ended(&run->recovery, job);
    end.status = own_status(job, result, &run->told, run->start);
    if (end.status == PROGRAM_FAILED) {
        launcher_recovery_notice(&run->recovery, 0, over_at, 0);
        if (!end.stop) blame(run, job, result, &missing);
    }
    if (end.status == PROGRAM_STOPPED && !end.stop && !end.planned && launcher_slurm_is_preempted())
        end.requeue = 1;
    /* handed over before they heard of it, perhaps in memory: the next ranks save for good */
    run->requeue_asked = end.requeue && end.planned && end.status == PROGRAM_STOPPED;
    if (run->requeue_asked) end.stop = end.requeue = 0;
    return end;
}

/* 0, or an exit status after a message. */
static int start_job(launcher_run *run, launcher_job *job, const launcher_placement *placement) {
    const launcher_options *o = run->options;
    int out = -1, err = -1;
    if (o->logs) {
        const int status = launcher_output_open(&run->output, o->logs, run->start, placement->ranks,
                                                run->family->tag_end);
        if (status != 0) return status;
        out = launcher_output_writer(run->output, STDOUT_FILENO);
        err = launcher_output_writer(run->output, STDERR_FILENO);
    }
    if (launcher_job_start(job, run->family, placement, o->program, &run->signals.before,
                           &run->told, out, err) == 0) {
        if (run->output) launcher_output_started(run->output);
        return 0;
    }
    launcher_output_close(run->output);
    run->output = NULL;
    return PROGRAM_FAILED;
}

/* The start number run->start, watched to its end and cleared away. */
static start_end run_once(launcher_run *run, const launcher_placement *placement) {
    launcher_job job;
    set_variables(run, placement);
    launcher_told_begin(&run->told);
    launcher_recovery_begin(&run->recovery, run->start);
    const int status = start_job(run, &job, placement);
    if (status != 0) return (start_end){.status = status};
    const launcher_result result = launcher_monitor_job(run, &job);
    const start_end end = end_job(run, &job, &result);
    launcher_job_free(&job);
    return end;
}

/* Whether to start again after a failure; says why not. A reason that repeats gets one restart, in
 * case somebody has removed it. */
static int is_worth_another(launcher_run *run) {
    launcher_budget *budget = &run->budget;
    const launcher_told *told = &run->told;
    const int before = budget->used;
    char advice[512];
    if (told->is_final) {
        fprintf(stderr, "dcp-run: giving up: %s\n", told->reason);
        return 0;
    }
    if (run->options->cluster.on_failure == LAUNCHER_ON_FAILURE_FAIL) {
        fprintf(stderr, "dcp-run: giving up at the first failure (--on-failure fail)\n");
        return 0;
    }
    const int allowed = launcher_budget_allows(budget);
    if (told->repeats && budget->used > 1) {
        fprintf(stderr,
                "dcp-run: giving up: restart %d failed like the start before it, and another one "
                "would, too: %s\n",
                before, told->reason);
        return 0;
    }
    launcher_cluster_advice(run->cluster, advice, sizeof advice);
    if (!allowed)
        fprintf(stderr, "dcp-run: giving up after %d %s without a newer step%s%s\n", budget->used,
                budget->used == 1 ? "restart" : "restarts", *advice ? "; " : "", advice);
    return allowed;
}

static void report_restart(const launcher_run *run, int ranks, int is_planned) {
    const int64_t newest = launcher_budget_newest(&run->budget);
    if (is_planned)
        fprintf(stderr, "dcp-run: start %d, planned, on %d %s", run->start, ranks,
                ranks == 1 ? "rank" : "ranks");
    else
        fprintf(stderr, "dcp-run: restart %d of %d, on %d %s", run->budget.used, run->budget.max,
                ranks, ranks == 1 ? "rank" : "ranks");
    if (newest >= 0) fprintf(stderr, ", newest complete step %lld", (long long)newest);
    fputc('\n', stderr);
}

/* What --restart-ranks says of the next start. */
static int take_listed_ranks(launcher_run *run) {
    const launcher_options *o = run->options;
    char why[512];
    if (o->then_count == 0) return 0;
    const int i = run->start <= o->then_count ? run->start - 1 : o->then_count - 1;
    if (launcher_cluster_resize(run->cluster, o->then_ranks[i], why, sizeof why) == 0) return 0;
    fprintf(stderr, "dcp-run: --restart-ranks %d: %s\n", o->then_ranks[i], why);
    return -1;
}

/* What is to be done after a start has ended, before the next one; -1: go on, else the exit
 * status. */
static int follow_up(launcher_run *run, const start_end *end) {
    int requeue = end->requeue;
    if (end->planned && end->status == PROGRAM_STOPPED && !end->stop) return -1;
    if (requeue && end->status != PROGRAM_DONE && end->status != PROGRAM_USAGE &&
        end->status != PROGRAM_DIFFERS)
        return PROGRAM_REQUEUE;
    if (end->status == PROGRAM_DIFFERS || end->status == PROGRAM_USAGE)
        fprintf(stderr, "dcp-run: start %d ended with status %d, which no restart would change\n",
                run->start, end->status);
    if (is_final(end->status)) return end->status;
    if (end->stop) return PROGRAM_FAILED;
    if (launcher_monitor_pause(run, 0, &requeue))
        return requeue ? PROGRAM_REQUEUE : PROGRAM_STOPPED;
    if (!is_worth_another(run) || take_listed_ranks(run) != 0) return PROGRAM_FAILED;
    const double wait = launcher_cluster_backoff_s(run->cluster);
    if (launcher_monitor_pause(run, wait, &requeue))
        return requeue ? PROGRAM_REQUEUE : PROGRAM_STOPPED;
    return -1;
}

/* After a planned start that its ranks refused (they would survive less than is asked for, or do
 * not divide a mesh): as many as before. Whether that is possible. */
static int go_back(launcher_run *run, const start_end *end, int ranks) {
    char why[512];
    const int before = run->ranks_before;
    run->ranks_before = 0;
    if (end->status != PROGRAM_USAGE || !run->was_planned || !before || before == ranks) return 0;
    if (run->recovery.reached_at[RANKS_PHASE_STEPPED] > 0) return 0;
    if (launcher_cluster_resize(run->cluster, before, why, sizeof why) != 0) return 0;
    snprintf(why, sizeof why, "the ranks refuse to be %d, as their messages say; back to %d", ranks,
             before);
    fprintf(stderr, "dcp-run: %s\n", why);
    launcher_requests_refused(run, why);
    return 1;
}

/* After a start that its ranks refused, of a run that has trained on other ones: another number of
 * them, or another spread. Whether there is one. */
static int try_others(launcher_run *run, const start_end *end, int ranks) {
    char next[64];
    const int has_stepped = run->recovery.reached_at[RANKS_PHASE_STEPPED] > 0;
    if (has_stepped) run->has_trained = 1;
    if (end->status != PROGRAM_USAGE || has_stepped || !run->has_trained) return 0;
    if (!launcher_cluster_refused(run->cluster, next, sizeof next)) return 0;
    fprintf(stderr, "dcp-run: the ranks refuse to be %d there, as their messages say; next: %s\n",
            ranks, next);
    return 1;
}

/* Until the run is done, or another start has no use: the exit status. */
static int launcher_supervise(launcher_run *run) {
    for (run->start = 1;; run->start++) {
        launcher_placement placement;
        int status = launcher_cluster_place(run->cluster, &placement);
        if (status) return status;
        if (run->start > 1) report_restart(run, placement.ranks, run->was_planned);
        const start_end end = run_once(run, &placement);
        const int ranks = placement.ranks;
        launcher_placement_free(&placement);
        if (!end.stop && (go_back(run, &end, ranks) || try_others(run, &end, ranks))) continue;
        status = follow_up(run, &end);
        if (status >= 0) return status;
        run->was_planned = end.planned && end.status == PROGRAM_STOPPED;
        run->ranks_before = run->was_planned ? ranks : 0;
    }
}

/* dcp-run: starts ranks, watches them, starts them again; and its other lives: the agent on another
 * host, what mpirun starts that by, what becomes a rank's program, and the one who asks a running
 * dcp-run. */

/* Names the run, so that a rank that starts afresh after a restart knows the lines of metrics that
 * the start before it has written. */
static void name_run(void) {
    uint64_t number = 0;
    char text[17];
    if (getrandom(&number, sizeof number, 0) < 0) number = (uint64_t)getpid();
    snprintf(text, sizeof text, "%016" PRIx64, number);
    setenv("DCP_RUN_NAME", text, 1);
}

/* So that ranks draw a bar where a person looks on, and print lines where their output is kept. */
static void tell_terminal(const launcher_options *options) {
    struct winsize size;
    char text[16];
    const int is_seen = !options->logs && isatty(STDOUT_FILENO) &&
                        ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
    snprintf(text, sizeof text, "%d", is_seen ? size.ws_col - 1 : 0);
    setenv("DCP_RUN_TERMINAL", text, 1);
}

/* A standard stream that is closed would be the next file that is opened, and get our messages. */
static void open_standard_streams(void) {
    int fd;
    do fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0) close(fd);
}

/* With all that it needs: the exit status. */
static int run_with(launcher_run *run, const launcher_watched *dirs) {
    const launcher_options *o = run->options;
    int status = launcher_cluster_open(&run->cluster, &o->cluster);
    if (status) return status;
    if (o->cluster.in_slurm) status = launcher_slurm_check();
    if (!status) status = launcher_family_find(&run->family);
    if (!status)
        status = launcher_control_open(&run->control, o->control, dirs->n ? dirs->at[0] : NULL);
    if (!status) {
        launcher_folders_sweep();
        launcher_budget_begin(&run->budget, dirs, o->max_restarts);
        name_run();
        tell_terminal(run->options);
        status = launcher_supervise(run);
        launcher_recovery_sum_up(&run->recovery);
        launcher_budget_end(&run->budget);
        launcher_control_close(run->control);
    }
    launcher_cluster_close(run->cluster);
    return status;
}

static int supervise(launcher_options *options) {
    launcher_run run = {.options = options};
    open_standard_streams();
    if (!launcher_processes_known())
        return program_fail(PROGRAM_FAILED,
                            "/proc shows other processes than ours: mount one for this PID "
                            "namespace, as unshare --mount-proc does");
    if (launcher_signals_open(&run.signals) != 0)
        return program_fail(PROGRAM_FAILED, "cannot watch signals: %s", strerror(errno));
    options->cluster.in_slurm = !options->cluster.hosts_file && getenv("SLURM_JOB_ID") != NULL;
    launcher_watched dirs;
    launcher_watched_find(&dirs, options->watch, options->program);
    options->cluster.evenly = dirs.has_redundancy;
    const int status = run_with(&run, &dirs);
    launcher_watched_free(&dirs);
    close(run.signals.fd);
    return status;
}

int main(int argc, char **argv) {
    program_survive_file_limit();
    if (argc > 1 && strcmp(argv[1], "agent") == 0) return launcher_remote_main(argc, argv);
    if (argc > 1 && strcmp(argv[1], "shell") == 0) return launcher_shell_main(argc, argv);
    if (argc > 1 && strcmp(argv[1], "start") == 0) return launcher_shell_start_main(argc, argv);
    if (argc > 1 && strcmp(argv[1], LAUNCHER_RANK) == 0) return launcher_rank_main(argc, argv);
    if (argc > 1 && strcmp(argv[1], "ctl") == 0) return launcher_control_main(argc, argv);
    launcher_options options;
    int status = launcher_options_read(argc, argv, &options);
    if (status < 0) status = supervise(&options);
    launcher_options_free(&options);
    return status;
}
