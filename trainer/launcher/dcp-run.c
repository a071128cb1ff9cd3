/* dcp-run: the starts of a run, one after the other, and the main function. One job exists at a
 * time: the next one starts only after launcher_job_clear has shown that nothing of the last one is
 * left. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <unistd.h>

#include "launcher/agent/agent.h"
#include "launcher/agent/folders.h"
#include "launcher/agent/processes.h"
#include "launcher/agent/remote.h"
#include "launcher/budget.h"
#include "launcher/control/control.h"
#include "launcher/mpirun.h"
#include "launcher/rank_program.h"
#include "launcher/requests.h"
#include "launcher/run.h"
#include "programs/program.h"

/* How a start has ended. */

/* The host of a rank; NULL: not known. */
static const char *host_of(const launcher_job *job, int rank) {
    return rank >= 0 && rank < job->ranks ? job->members[rank].host : NULL;
}

static bool all_hosts_answered(const launcher_job *job) {
    return job->remote_up == job->remote_hosts;
}

/* Returns true if the rank that ended first is likely to be the cause: it was killed, or ended by
 * exit() although it should have reported its status. */
static bool is_first_to_blame(const launcher_job *job) {
    return job->status > 128 || job->mpirun_lives || job->dead >= 0 || !job->end_report.reports;
}

static void report_failure(const launcher_start *start) {
    const launcher_job *job = &start->job;
    const int first = job->dead >= 0 ? job->dead : job->first_gone;
    if (job->lost || start->has_stalled) return; /* this has been reported */
    fprintf(stderr, "dcp-run: start %d failed", start->number);
    if (!all_hosts_answered(job) && !job->launched) fputs(", and hosts have not answered", stderr);
    if (!job->mpirun_lives) fprintf(stderr, " with status %d", job->status);
    if (!job->mpirun_lives && job->status > 128 && sigabbrev_np(job->status - 128))
        fprintf(stderr, " (%s)", strsignal(job->status - 128));
    if (is_first_to_blame(job) && first >= 0 && job->appeared == job->ranks) {
        const char *host = host_of(job, first);
        fprintf(stderr, "; rank %d, pid %d%s%s, ended %s", first, (int)job->members[first].pid,
                host ? ", on " : "", host ? host : "",
                job->dead >= 0 && job->status < 128 ? "without saying how" : "first");
    }
    fputc('\n', stderr);
}

/* Returns true for a status that a restart would not change. */
static bool is_final(int status) {
    return status == PROGRAM_DONE || status == PROGRAM_DIFFERS || status == PROGRAM_USAGE ||
           status == PROGRAM_STOPPED || status == PROGRAM_REQUEUE;
}

/* Returns true, after a message, if mpirun ended without starting a rank because it does not know
 * one of its options. */
static bool has_refused_options(const launcher_start *start) {
    const launcher_job *job = &start->job;
    if (job->mpirun_lives || job->appeared > 0 || job->status == PROGRAM_DONE ||
        !launcher_mpirun_refuses(job->command))
        return false;
    fprintf(stderr,
            "dcp-run: start %d failed with status %d: mpirun has printed why it refuses this "
            "command line:",
            start->number, job->status);
    for (char *const *word = job->command; *word; word++) fprintf(stderr, " %s", *word);
    fputc('\n', stderr);
    return true;
}

/* Returns the exit status of a start, after a message if it failed. Statuses that come from mpirun
 * itself, or from an MPI_Init that fails, are failures. Status 1 of a program that reports nothing
 * is also a failure, because it is the status of every uncaught Python exception. */
static int judge_status(const launcher_start *start) {
    const launcher_job *job = &start->job;
    const bool is_exception =
        job->status == PROGRAM_DIFFERS && job->launched && !job->end_report.reports;
    const int status = is_exception ? PROGRAM_FAILED : job->status;
    if (launcher_job_is_done(job)) return PROGRAM_DONE;
    if (has_refused_options(start)) return PROGRAM_USAGE;
    const bool ends_as_asked = status == PROGRAM_STOPPED && start->end_request != RANKS_END_NONE;
    if (ends_as_asked && !start->is_killed) return status;
    const bool has_failed = job->mpirun_lives || job->dead >= 0 || job->lost ||
                            start->has_stalled || status == PROGRAM_DONE || !is_final(status);
    if (has_failed) report_failure(start);
    if (start->is_killed || has_failed) return PROGRAM_FAILED;
    if (start->end_request >= RANKS_END_STOP) return status;
    if (!job->launched || !launcher_end_report_has(&job->end_report, status)) {
        fprintf(stderr,
                "dcp-run: start %d failed with status %d, which is that of %s, not of a "
                "rank\n",
                start->number, status, job->launched ? "MPI" : "mpirun");
        return PROGRAM_FAILED;
    }
    return status;
}

/* Records which rank or host failed, so the next starts can leave it out. If a host whose agent is
 * gone still answers, it gets another chance: the loss then counts as the failure of a rank. */
static void blame(launcher_run *run, const launcher_probe *missing) {
    const launcher_start *start = &run->start;
    const launcher_job *job = &start->job;
    const launcher_probe *lost = &job->lost_probe;
    for (size_t i = 0; i < missing->n; i++)
        if (!missing->reached[i]) launcher_cluster_host_lost(run->cluster, missing->hosts[i]);
    if (lost->n && !lost->reached[0])
        launcher_cluster_host_lost(run->cluster, job->lost);
    else if (lost->n)
        launcher_cluster_rank_failed(run->cluster, job->lost);
    if (missing->n || lost->n) return;
    const int rank = start->has_stalled ? start->behind
                     : job->dead >= 0   ? job->dead
                                        : job->first_gone;
    if (rank >= 0) launcher_cluster_rank_failed(run->cluster, host_of(job, rank));
}

/* Returns true if the ranks have ended for a resize, with a step that is not in checkpoint.dir. */
static bool has_handed_over(const launcher_job *job) {
    for (int r = 0; r < job->ranks; r++)
        if (job->members[r].report.handed_over) return true;
    return false;
}

/* Returns true if the ranks have not done what they were asked, to save as for SIGTERM: the request
 * reached them after they had saved for a resize, perhaps only to memory, or they have refused
 * their number. That they have saved for a resize is shown by the status if they were to be
 * requeued, and by their reports if they were to stop. */
static bool leaves_request(const launcher_start *start) {
    if (start->end_request < RANKS_END_STOP) return false;
    if (start->status == PROGRAM_USAGE) return start->is_planned;
    if (start->status != PROGRAM_STOPPED) return false;
    return start->end_request == RANKS_END_REQUEUE ? start->handed_over
                                                   : has_handed_over(&start->job);
}

static void judge_start(launcher_run *run, double over_at, const launcher_probe *missing) {
    launcher_start *start = &run->start;
    start->status = judge_status(start);
    if (start->status == PROGRAM_FAILED) {
        launcher_recovery_notice(run, 0, over_at, false);
        if (start->end_request < RANKS_END_STOP) blame(run, missing);
    }
    if (start->status == PROGRAM_STOPPED && start->end_request == RANKS_END_NONE &&
        launcher_slurm_is_preempted())
        start->end_request = RANKS_END_REQUEUE;
    run->repeat_next = leaves_request(start) ? start->end_request : RANKS_END_NONE;
    if (run->repeat_next) start->end_request = RANKS_END_RESIZE; /* the next ranks receive it */
}

static void end_start(launcher_run *run) {
    launcher_start *start = &run->start;
    launcher_probe missing = {.family = run->family};
    if (!all_hosts_answered(&start->job)) launcher_job_list_missing(&start->job, &missing);
    const double over_at = program_now_s();
    launcher_probe_begin(&missing, LAUNCHER_PROBE_S);
    const int left = launcher_job_clear(&start->job, run->options->grace_s);
    launcher_probe_finish(&missing);
    launcher_probe_finish(&start->job.lost_probe);
    if (left == 0) {
        launcher_recovery_ended(run);
        judge_start(run, over_at, &missing);
        return;
    }
    fprintf(stderr,
            "dcp-run: giving up: processes of start %d are still alive, and may still write; end "
            "them before another start\n",
            start->number);
    start->status = PROGRAM_FAILED;
    if (start->end_request < RANKS_END_STOP) start->end_request = RANKS_END_STOP;
}

/* A start. */

/* Sets the environment variables of all ranks of the present start. At a restart no process of the
 * earlier start is left. So the ranks may take over its stores, even on a file system that cannot
 * show that the stores are free. */
static void set_variables(launcher_run *run) {
    const launcher_start *start = &run->start;
    char grace[32];
    launcher_set_number("DCP_RUN_RANKS", start->placement.ranks);
    snprintf(grace, sizeof grace, "%g", run->options->grace_s);
    setenv("DCP_RUN_GRACE", grace, 1);
    launcher_set_number("TORCHELASTIC_RESTART_COUNT", start->number - 1);
    launcher_set_number("TORCHELASTIC_MAX_RESTARTS", run->budget.max);
    setenv("DCP_RUN_FAILED", run->reason_before, 1);
    unsetenv("DCP_RUN_TAKE_OVER");
    unsetenv("DCP_RUN_RESTART");
    if (start->number == 1) return;
    setenv("DCP_RUN_TAKE_OVER", "1", 1);
    if (launcher_budget_has_published(&run->budget)) setenv("DCP_RUN_RESTART", "1", 1);
}

/* Starts the job of the present start. Returns 0, or an exit status after a message. */
static int start_job(launcher_run *run) {
    const launcher_options *o = run->options;
    launcher_start *start = &run->start;
    launcher_output *output = NULL;
    int status = 0;
    if (o->logs)
        status = launcher_output_open(&output, o->logs, start->number, start->placement.ranks,
                                      run->family->tag_end);
    if (status != 0) return status;
    const int failed = launcher_job_start(&start->job, run->family, &start->placement, o->program,
                                          &run->signals.before, output);
    return failed ? PROGRAM_FAILED : 0;
}

static void run_start(launcher_run *run) {
    launcher_start *start = &run->start;
    set_variables(run);
    launcher_recovery_begin(run);
    start->status = start_job(run);
    if (start->status == 0) {
        launcher_monitor_start(run);
        end_start(run);
        launcher_job_free(&start->job);
    }
}

/* Begins the record of the next start. `is_planned`, `ranks_before`: see launcher_start. */
static void next_start(launcher_run *run, const launcher_placement *placement, bool is_planned,
                       int ranks_before) {
    const int number = run->start.number + 1;
    assert(run->start.phase == LAUNCHER_BETWEEN);
    snprintf(run->reason_before, sizeof run->reason_before, "%s", run->start.job.end_report.reason);
    launcher_placement_free(&run->start.placement);
    run->start = (launcher_start){.number = number,
                                  .is_planned = is_planned,
                                  .ranks_before = ranks_before,
                                  .behind = -1,
                                  .placement = *placement};
}

/* What follows a start. */

/* Returns true if there is to be another start after a failure; otherwise prints why not. A reason
 * that repeats gets one restart, in case somebody has removed its cause. */
static bool is_worth_another(launcher_run *run) {
    launcher_budget *budget = &run->budget;
    const launcher_end_report *told = &run->start.job.end_report;
    const int before = budget->used;
    char advice[512];
    if (told->is_final) {
        fprintf(stderr, "dcp-run: giving up: %s\n", told->reason);
        return false;
    }
    if (run->options->cluster.on_failure == LAUNCHER_ON_FAILURE_FAIL) {
        fprintf(stderr, "dcp-run: giving up at the first failure (--on-failure fail)\n");
        return false;
    }
    const bool is_allowed = launcher_budget_allows(budget);
    const bool repeats = *run->reason_before && strcmp(run->reason_before, told->reason) == 0;
    if (repeats && budget->used > 1) {
        fprintf(stderr,
                "dcp-run: giving up: restart %d failed like the start before it, and another "
                "restart would fail, too: %s\n",
                before, told->reason);
        return false;
    }
    launcher_cluster_advice(run->cluster, advice, sizeof advice);
    if (!is_allowed)
        fprintf(stderr, "dcp-run: giving up after %d %s without a newer step%s%s\n", budget->used,
                budget->used == 1 ? "restart" : "restarts", *advice ? "; " : "", advice);
    return is_allowed;
}

static void report_restart(const launcher_run *run) {
    const launcher_start *start = &run->start;
    const int ranks = start->placement.ranks;
    const int64_t newest = launcher_budget_newest(&run->budget);
    if (start->is_planned)
        fprintf(stderr, "dcp-run: start %d, planned", start->number);
    else
        fprintf(stderr, "dcp-run: restart %d of %d", run->budget.used, run->budget.max);
    fprintf(stderr, ", on %d %s", ranks, ranks == 1 ? "rank" : "ranks");
    if (newest >= 0) fprintf(stderr, ", newest complete step %lld", (long long)newest);
    fputc('\n', stderr);
}

/* Applies what --restart-ranks specifies for the next start. Returns 0, or -1 after a message. */
static int take_listed_ranks(launcher_run *run) {
    const launcher_options *o = run->options;
    const int starts = run->start.number;
    char why[512];
    if (o->then_count == 0) return 0;
    const int i = starts <= o->then_count ? starts - 1 : o->then_count - 1;
    if (launcher_cluster_resize(run->cluster, o->then_ranks[i], why, sizeof why) == 0) return 0;
    fprintf(stderr, "dcp-run: --restart-ranks %d: %s\n", o->then_ranks[i], why);
    return -1;
}

/* Waits before the next start. Returns -1, or the exit status if the run was asked to end. */
static int pause_before_next(launcher_run *run, double seconds) {
    if (!launcher_monitor_pause(run, seconds)) return -1;
    return run->start.end_request == RANKS_END_REQUEUE ? PROGRAM_REQUEUE : PROGRAM_STOPPED;
}

/* Does what is due between two starts. Returns -1 if there is to be another start, otherwise the
 * exit status of the run. */
static int follow_up(launcher_run *run) {
    const launcher_start *start = &run->start;
    const int status = start->status;
    const bool is_unchangeable = status == PROGRAM_USAGE || status == PROGRAM_DIFFERS;
    if (start->end_request == RANKS_END_RESIZE && status == PROGRAM_STOPPED) return -1;
    if (start->end_request == RANKS_END_REQUEUE && status != PROGRAM_DONE && !is_unchangeable)
        return PROGRAM_REQUEUE;
    if (is_unchangeable)
        fprintf(stderr, "dcp-run: start %d ended with status %d, which no restart would change\n",
                start->number, status);
    if (is_final(status)) return status;
    if (start->end_request >= RANKS_END_STOP) return PROGRAM_FAILED;
    const int end = pause_before_next(run, 0);
    if (end >= 0) return end;
    if (!is_worth_another(run) || take_listed_ranks(run) != 0) return PROGRAM_FAILED;
    return pause_before_next(run, launcher_cluster_backoff_s(run->cluster));
}

/* Goes back to the previous number of ranks if the ranks of a planned start rejected their number,
 * for example because a store would survive fewer losses than it should, or a mesh cannot be
 * divided. Returns true if it goes back. */
static bool go_back(launcher_run *run) {
    const launcher_start *start = &run->start;
    const int before = start->ranks_before, ranks = start->placement.ranks;
    char why[512];
    if (start->status != PROGRAM_USAGE || !before || before == ranks) return false;
    if (launcher_recovery_has_stepped(&run->recovery)) return false;
    if (launcher_cluster_resize(run->cluster, before, why, sizeof why) != 0) return false;
    snprintf(why, sizeof why,
             "the ranks refuse the number %d (see their messages); the run goes back to %d", ranks,
             before);
    fprintf(stderr, "dcp-run: %s\n", why);
    launcher_requests_refuse_resize(run, why);
    return true;
}

/* Chooses a different number of ranks, or a different distribution over the hosts, if the run has
 * trained and its ranks rejected the present number or distribution. Returns true if there is
 * another choice to try. */
static bool try_others(launcher_run *run) {
    const launcher_start *start = &run->start;
    char next[64];
    if (start->status != PROGRAM_USAGE || launcher_recovery_has_stepped(&run->recovery) ||
        !run->has_trained || !launcher_cluster_refused(run->cluster, next, sizeof next))
        return false;
    fprintf(
        stderr,
        "dcp-run: the ranks refuse the number %d on these hosts (see their messages); next: %s\n",
        start->placement.ranks, next);
    return true;
}

/* Starts ranks until the run is done, or another start would not help. Returns the exit status. */
static int supervise(launcher_run *run) {
    launcher_start *start = &run->start;
    bool is_planned = false;
    int ranks_before = 0;
    for (;;) {
        launcher_placement placement;
        int status = launcher_cluster_place(run->cluster, &placement);
        if (status) return status;
        next_start(run, &placement, is_planned, ranks_before);
        if (start->number > 1) report_restart(run);
        run_start(run);
        run->has_trained |= launcher_recovery_has_stepped(&run->recovery);
        ranks_before = 0;
        if (start->end_request < RANKS_END_STOP && (go_back(run) || try_others(run))) continue;
        status = follow_up(run);
        if (status >= 0) return status;
        is_planned = start->end_request == RANKS_END_RESIZE && start->status == PROGRAM_STOPPED;
        ranks_before = is_planned ? start->placement.ranks : 0;
    }
}

/* The main function. The same program is also the agent on another host, the program by which
 * mpirun starts an agent, the program that becomes a rank, and `dcp-run ctl`. */

/* Names the run. The name lets a rank that starts from the beginning again after a restart
 * recognize the metrics that an earlier start wrote. */
static void name_run(void) {
    uint64_t number = 0;
    char text[17];
    if (getrandom(&number, sizeof number, 0) < 0) number = (uint64_t)getpid();
    snprintf(text, sizeof text, "%016" PRIx64, number);
    setenv("DCP_RUN_NAME", text, 1);
}

/* Ranks draw a progress bar on a terminal, and print lines if their output goes to a file. */
static void set_terminal(const launcher_options *options) {
    struct winsize size;
    const bool is_seen = !options->logs && isatty(STDOUT_FILENO) &&
                         ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
    launcher_set_number("DCP_RUN_TERMINAL", is_seen ? size.ws_col - 1 : 0);
}

static int open_and_supervise(launcher_run *run, const launcher_watched *dirs) {
    const launcher_options *o = run->options;
    int status = launcher_cluster_open(&run->cluster, &o->cluster);
    if (status) return status;
    if (o->cluster.in_slurm) status = launcher_slurm_check();
    if (!status) status = launcher_family_find(&run->family);
    if (!status)
        status = launcher_control_open(&run->control, o->control, dirs->n ? dirs->at[0] : NULL);
    if (!status) {
        launcher_folders_remove_stale();
        launcher_budget_begin(&run->budget, dirs, o->max_restarts);
        name_run();
        set_terminal(run->options);
        status = supervise(run);
        launcher_recovery_summarize(run);
        launcher_placement_free(&run->start.placement);
        launcher_budget_end(&run->budget);
        launcher_control_close(run->control);
    }
    launcher_cluster_close(run->cluster);
    return status;
}

static int run_program(launcher_options *options) {
    launcher_run run = {.options = options};
    launcher_agent_open_streams();
    if (!launcher_processes_are_visible())
        return program_fail(PROGRAM_FAILED, "/proc shows another PID namespace: mount a /proc for "
                                            "this one, as unshare --mount-proc does");
    if (launcher_signals_open(&run.signals) != 0)
        return program_fail(PROGRAM_FAILED, "cannot watch signals: %s", strerror(errno));
    options->cluster.in_slurm = !options->cluster.hosts_file && getenv("SLURM_JOB_ID") != NULL;
    launcher_watched dirs;
    launcher_watched_find(&dirs, options->watch, options->program);
    options->cluster.evenly = dirs.has_redundancy;
    const int status = open_and_supervise(&run, &dirs);
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
    if (status < 0) status = run_program(&options);
    launcher_options_free(&options);
    return status;
}
