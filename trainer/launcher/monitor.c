/* The events of a run: a table, and a loop that handles them. */
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "launcher/agent/agent.h"
#include "launcher/mpirun.h"
#include "launcher/requests.h"
#include "launcher/run.h"
#include "programs/program.h"

/* mpirun itself notices when a rank dies, and ends the others, but this may take seconds. So
 * dcp-run ends the start at once if a rank ends without having reported its status. If the program
 * reports nothing, dcp-run waits until mpirun ends. dcp-run steps in if mpirun does not end after
 * its last rank, or if an end that was requested takes too long. Only mpirun knows the status of
 * the ranks, so it is killed last. */

enum {
    SETTLE_MS = 3000,     /* if no other rank appears for this long, the missing ones have ended */
    MPIRUN_LINGER_S = 10, /* for mpirun to end after its last rank */
    DRAIN_S = 1,          /* for mpirun to end after a failure: it passes on the ranks' output */
    ANSWER_S = 30,        /* for the agents of all hosts to connect */
    STACKS_S = 10,        /* per process */
    ALL_STACKS_S = 60,
    LOOK_S = 1,        /* between two checks of the host file */
    SILENT_S = 2,      /* for a host to answer a probe, after a lease without a message */
    HEARTBEAT_MS = 250 /* with other hosts: the longest sleep */
};

/* Ranks. */

static void print_start(launcher_start *start) {
    const launcher_job *job = &start->job;
    char *line = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&line, &bytes);
    if (!out) return;
    /* scripts rely on the form of this line, even for a single rank */
    fprintf(out, "dcp-run: start %d, %d ranks, pids", start->number, job->ranks);
    for (int r = 0; r < job->ranks; r++)
        if (job->members[r].pid) fprintf(out, " %d", (int)job->members[r].pid);
    if (job->appeared == 0)
        fprintf(out, " (ended at once)");
    else if (job->appeared < job->ranks)
        fprintf(out, " (%d ended at once)", job->ranks - job->appeared);
    fputc('\n', out);
    /* in one write, because the ranks write to stderr as well */
    if (fclose(out) == 0) fwrite(line, 1, bytes, stderr);
    free(line);
    start->is_announced = true;
}

static void announce(launcher_run *run) {
    if (run->start.is_announced) return;
    print_start(&run->start);
    launcher_requests_answer(run, LAUNCHER_NEWS_APPEARED);
}

static void look_for_ranks(launcher_run *run) {
    launcher_start *start = &run->start;
    const bool has_found = start->job.appeared > start->n_appeared;
    start->n_appeared = start->job.appeared;
    if (start->is_announced) return;
    if (has_found || (start->job.launched && start->due[LAUNCHER_DUE_APPEARED] == 0))
        launcher_start_set_due(start, LAUNCHER_DUE_APPEARED, SETTLE_MS * 1e-3);
}

static bool all_have_appeared(const launcher_run *run) {
    return run->start.job.appeared == run->start.job.ranks;
}

static void begin_running(launcher_run *run) { run->start.phase = LAUNCHER_RUNNING; }

/* Handles what ranks have reported on the board: progress, published steps, and phases. */
static void take_reports(launcher_run *run) {
    launcher_start *start = &run->start;
    const double now = program_now_s();
    for (int r = 0; r < start->job.ranks; r++) {
        const launcher_rank_report *seen = &start->job.members[r].report;
        const launcher_beat beat = {.progress = seen->progress,
                                    .step = seen->step,
                                    .micro_batch = seen->micro_batch,
                                    .phase = seen->phase,
                                    .slowest_s = (double)seen->slowest_ns * 1e-9};
        if (seen->told) launcher_stall_beat(&start->stall, r, &beat, now);
        if (seen->published && launcher_budget_record(&run->budget, (int64_t)seen->published - 1))
            launcher_cluster_progressed(run->cluster);
    }
    start->due[LAUNCHER_DUE_STALL] =
        start->end_request < RANKS_END_STOP ? launcher_stall_deadline(&start->stall) : 0;
    launcher_requests_answer(run, LAUNCHER_NEWS_REPORTS);
    if (launcher_recovery_update(run) && !start->handed_over)
        launcher_requests_answer(run, LAUNCHER_NEWS_STEPPED);
}

/* Failures. */

/* The start is lost: kills all ranks, and lets mpirun pass on what they have written. */
static void fail_start(launcher_run *run, double alive_at) {
    launcher_start *start = &run->start;
    assert(start->phase != LAUNCHER_BETWEEN && start->phase != LAUNCHER_FAILED);
    start->phase = LAUNCHER_FAILED;
    launcher_recovery_notice(run, alive_at, program_now_s(), false);
    launcher_start_set_due(start, LAUNCHER_DUE_DRAINED, DRAIN_S);
    launcher_guard_wake(&start->job.guard);
    launcher_job_send(&start->job, json_pack("{s:s}", "kind", "kill_ranks"));
    launcher_job_send_local(&start->job, "wake_child");
}

static bool has_dead_rank(const launcher_run *run) { return run->start.job.dead >= 0; }

static void fail_by_rank(launcher_run *run) { fail_start(run, 0); }

static bool has_lost_host(const launcher_run *run) {
    return run->start.job.lost && !launcher_job_is_done(&run->start.job);
}

static void fail_by_host(launcher_run *run) {
    launcher_job *job = &run->start.job;
    const bool is_silent = program_now_s() - job->alive_at >= LAUNCHER_LEASE_S;
    job->lost_probe.family = run->family;
    job->lost_probe.hosts[job->lost_probe.n++] = job->lost;
    launcher_probe_begin(&job->lost_probe, is_silent ? SILENT_S : LAUNCHER_PROBE_S);
    fail_start(run, job->alive_at);
}

static bool misses_hosts(const launcher_run *run) {
    const launcher_job *job = &run->start.job;
    return job->remote_up < job->remote_hosts && !launcher_job_is_done(job);
}

static void fail_by_silence(launcher_run *run) {
    const launcher_job *job = &run->start.job;
    fprintf(stderr, "dcp-run: %zu of %zu other hosts do not answer\n",
            job->remote_hosts - job->remote_up, job->remote_hosts);
    fail_start(run, 0);
}

/* Stalls. */

static bool is_wanted(const launcher_run *run) { return run->start.end_request < RANKS_END_STOP; }

/* No rank makes progress: requests the stacks of all ranks. */
static void begin_stall(launcher_run *run) {
    launcher_start *start = &run->start;
    const int behind = launcher_stall_behind(&start->stall);
    start->phase = LAUNCHER_STALLED;
    start->has_stalled = true;
    start->behind = behind;
    fprintf(stderr, "dcp-run: no rank has made progress for %.0f s (--stall)",
            program_now_s() - start->stall.moved_at);
    if (behind >= 0)
        fprintf(stderr, "; rank %d is behind: step %llu, micro-batch %llu", behind,
                (unsigned long long)start->job.members[behind].report.step,
                (unsigned long long)start->job.members[behind].report.micro_batch);
    fputc('\n', stderr);
    launcher_start_set_due(start, LAUNCHER_DUE_STACKS, ALL_STACKS_S);
    launcher_job_request_stacks(&start->job, STACKS_S);
}

static bool has_all_stacks(const launcher_run *run) { return run->start.job.stacks_pending == 0; }

static void fail_by_stall(launcher_run *run) {
    const launcher_start *start = &run->start;
    if (start->job.stacks_pending > 0)
        fprintf(stderr, "dcp-run: %d hosts have not sent the stacks of their ranks within %d s\n",
                start->job.stacks_pending, ALL_STACKS_S);
    fail_start(run, start->stall.moved_at);
}

/* Hosts. */

static void look_at_hosts(launcher_run *run) {
    launcher_start_set_due(&run->start, LAUNCHER_DUE_HOSTS, LOOK_S);
    if (launcher_cluster_refresh(run->cluster))
        launcher_requests_plan(run, "the hosts have changed");
}

/* The end. */

static bool all_ranks_ended(const launcher_start *start) {
    return start->is_announced && (start->job.alive == 0 || launcher_job_is_done(&start->job));
}

/* Sets the deadline by which mpirun must end, once all ranks have ended. */
static void watch_mpirun(launcher_run *run) {
    launcher_start *start = &run->start;
    if (!all_ranks_ended(start))
        start->due[LAUNCHER_DUE_LINGER] = 0;
    else if (start->due[LAUNCHER_DUE_LINGER] == 0)
        launcher_start_set_due(start, LAUNCHER_DUE_LINGER, MPIRUN_LINGER_S);
}

/* Kills the ranks, which did not end in time. If a rank is alive at the first call, that call does
 * not kill mpirun, so mpirun can tidy up after the ranks. Otherwise kills mpirun as well, because
 * it would wait for ever for a rank that SIGKILL does not end. */
static void kill_ranks(launcher_start *start) {
    fprintf(stderr, "dcp-run: killing what is left of start %d\n", start->number);
    if (start->job.alive == 0 || start->is_killed)
        launcher_job_send_local(&start->job, "kill_child");
    start->is_killed = true;
    launcher_job_send(&start->job, json_pack("{s:s}", "kind", "kill_ranks"));
}

/* To be called if all ranks have ended, but mpirun has not. The first call kills the processes that
 * the ranks left running; later calls kill mpirun. */
static void kill_lingering(launcher_start *start) {
    if (start->orphans_killed) {
        fprintf(stderr, "dcp-run: killing mpirun, which has outlived all ranks of start %d\n",
                start->number);
        launcher_job_send_local(&start->job, "kill_child");
    } else {
        fprintf(stderr, "dcp-run: killing what the ranks of start %d left running\n",
                start->number);
        launcher_job_send(&start->job, json_pack("{s:s}", "kind", "kill_orphans"));
        start->orphans_killed = true;
    }
    launcher_start_set_due(start, LAUNCHER_DUE_LINGER, MPIRUN_LINGER_S);
}

static void kill_rest(launcher_run *run) {
    launcher_start *start = &run->start;
    if (all_ranks_ended(start))
        kill_lingering(start);
    else
        kill_ranks(start);
    if (start->end_request != RANKS_END_NONE)
        launcher_start_set_due(start, LAUNCHER_DUE_KILL, MPIRUN_LINGER_S);
}

static bool mpirun_has_ended(const launcher_run *run) { return !run->start.job.mpirun_lives; }

static void end_start(launcher_run *run) { run->start.phase = LAUNCHER_BETWEEN; }

/* Events. */

#define IN(phase) (1u << (phase))

enum {
    BETWEEN = IN(LAUNCHER_BETWEEN),
    GOING_ON = IN(LAUNCHER_STARTING) | IN(LAUNCHER_RUNNING),
    ALIVE = GOING_ON | IN(LAUNCHER_STALLED),
    UNDER_WAY = ALIVE | IN(LAUNCHER_FAILED)
};

/* An event can happen only in its phases. It happens when its deadline has passed and its condition
 * holds. An event without a deadline is checked each time that dcp-run wakes up. An event without a
 * condition needs only its deadline. */
typedef struct start_event {
    unsigned phases;
    launcher_deadline deadline;
    bool (*happens)(const launcher_run *run);
    void (*act)(launcher_run *run);
} start_event;

/* Events of one wake-up are handled in this order. */
static const start_event events[] = {
    {.phases = UNDER_WAY, .act = launcher_requests_handle_signals},
    {.phases = BETWEEN, .act = launcher_requests_record_signals},
    {.phases = UNDER_WAY, .act = look_for_ranks},
    {.phases = IN(LAUNCHER_STARTING), .happens = all_have_appeared, .act = begin_running},
    {.phases = UNDER_WAY, .happens = all_have_appeared, .act = announce},
    {.phases = UNDER_WAY, .deadline = LAUNCHER_DUE_APPEARED, .act = announce},
    {.phases = UNDER_WAY, .act = take_reports},
    {.phases = UNDER_WAY | BETWEEN, .act = launcher_requests_handle},
    {.phases = ALIVE, .happens = has_dead_rank, .act = fail_by_rank},
    {.phases = ALIVE, .happens = has_lost_host, .act = fail_by_host},
    {.phases = ALIVE,
     .deadline = LAUNCHER_DUE_ANSWER,
     .happens = misses_hosts,
     .act = fail_by_silence},
    {.phases = GOING_ON, .deadline = LAUNCHER_DUE_STALL, .happens = is_wanted, .act = begin_stall},
    {.phases = IN(LAUNCHER_STALLED), .happens = has_all_stacks, .act = fail_by_stall},
    {.phases = IN(LAUNCHER_STALLED), .deadline = LAUNCHER_DUE_STACKS, .act = fail_by_stall},
    {.phases = UNDER_WAY, .deadline = LAUNCHER_DUE_HOSTS, .act = look_at_hosts},
    {.phases = UNDER_WAY, .happens = mpirun_has_ended, .act = end_start},
    {.phases = UNDER_WAY, .act = watch_mpirun},
    {.phases = UNDER_WAY, .deadline = LAUNCHER_DUE_LINGER, .act = kill_rest},
    {.phases = UNDER_WAY, .deadline = LAUNCHER_DUE_KILL, .act = kill_rest},
    {.phases = IN(LAUNCHER_FAILED), .deadline = LAUNCHER_DUE_DRAINED, .act = end_start},
    {.phases = BETWEEN, .deadline = LAUNCHER_DUE_NEXT},
};
enum { N_EVENTS = sizeof events / sizeof *events };

static bool counts(const launcher_run *run, const start_event *event) {
    return event->phases & IN(run->start.phase);
}

/* Returns true if the event's deadline has passed, or if it has none. Resets a deadline that has
 * passed, so it counts only once. */
static bool pass_deadline(launcher_start *start, launcher_deadline deadline) {
    if (deadline == LAUNCHER_DUE_NONE) return true;
    if (start->due[deadline] == 0 || program_now_s() < start->due[deadline]) return false;
    start->due[deadline] = 0;
    return true;
}

static void handle_events(launcher_run *run) {
    for (const start_event *event = events; event < events + N_EVENTS; event++) {
        if (!counts(run, event) || !pass_deadline(&run->start, event->deadline)) continue;
        if (event->act && (!event->happens || event->happens(run))) event->act(run);
    }
}

/* Returns the time until the earliest deadline of the phase, or until the next heartbeat. */
static int timeout_ms(const launcher_run *run) {
    const launcher_start *start = &run->start;
    double next = 0;
    for (const start_event *event = events; event < events + N_EVENTS; event++) {
        const double due = counts(run, event) ? start->due[event->deadline] : 0;
        if (due > 0 && (next == 0 || due < next)) next = due;
    }
    assert(next > 0);
    double left = (next - program_now_s()) * 1e3;
    if (start->phase != LAUNCHER_BETWEEN && start->job.remote_hosts && left > HEARTBEAT_MS)
        left = HEARTBEAT_MS;
    return left < 0 ? 0 : (int)left + 1;
}

static void sleep_until_event(launcher_run *run) {
    launcher_start *start = &run->start;
    const bool is_between = start->phase == LAUNCHER_BETWEEN;
    const size_t room = 3 + (is_between ? 0 : 1 + start->job.n_links + (size_t)start->job.ranks);
    struct pollfd *polled = calloc(room, sizeof *polled);
    size_t n = 0;
    if (polled) {
        polled[n++].fd = run->signals.fd;
        polled[n++].fd = run->control ? launcher_control_fd(run->control) : -1;
        polled[n++].fd = start->job.output ? launcher_output_fd(start->job.output) : -1;
        for (size_t i = 0; i < n; i++) polled[i].events = POLLIN;
        if (!is_between) n += launcher_job_list(&start->job, polled + n, room - n);
    }
    if (poll(polled, n, timeout_ms(run)) < 0 && errno != EINTR) end_start(run);
    free(polled);
}

void launcher_monitor_start(launcher_run *run) {
    launcher_start *start = &run->start;
    assert(start->phase == LAUNCHER_BETWEEN);
    start->phase = LAUNCHER_STARTING;
    launcher_stall_begin(&start->stall, run->options->stall_s, start->job.ranks);
    launcher_start_set_due(start, LAUNCHER_DUE_HOSTS, LOOK_S);
    if (start->job.remote_hosts) launcher_start_set_due(start, LAUNCHER_DUE_ANSWER, ANSWER_S);
    if (run->repeat_next) launcher_requests_repeat(run);
    while (start->phase != LAUNCHER_BETWEEN) {
        sleep_until_event(run);
        if (start->job.output) launcher_output_forward(start->job.output);
        launcher_job_receive(&start->job);
        handle_events(run);
    }
    if (!start->is_announced) print_start(start);
    launcher_requests_answer(run, LAUNCHER_NEWS_ENDED);
}

bool launcher_monitor_pause(launcher_run *run, double seconds) {
    launcher_start *start = &run->start;
    assert(start->phase == LAUNCHER_BETWEEN);
    launcher_start_set_due(start, LAUNCHER_DUE_NEXT, seconds);
    while (start->end_request < RANKS_END_STOP && start->due[LAUNCHER_DUE_NEXT] > 0) {
        sleep_until_event(run);
        handle_events(run);
    }
    if (start->end_request < RANKS_END_STOP) return false;
    if (launcher_slurm_is_preempted()) start->end_request = RANKS_END_REQUEUE;
    return true;
}
