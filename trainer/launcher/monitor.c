#include "launcher/monitor.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/agent/agent.h"
#include "launcher/budget.h"
#include "launcher/mpirun.h"
#include "launcher/stall.h"
#include "programs/program.h"

static void refuse(launcher_run *run, uint64_t client, const char *why) {
    launcher_control_answer(run->control, client, json_pack("{s:s}", "error", why));
}

static json_t *list_ranks(const launcher_job *job) {
    json_t *list = json_array();
    for (int r = 0; r < job->ranks; r++) {
        const launcher_rank *rank = &job->members[r];
        json_array_append_new(list, json_pack("{s:i,s:i,s:s?,s:I,s:I,s:b}", "rank", r, "pid",
                                              (int)rank->pid, "host", rank->host, "step",
                                              (json_int_t)rank->seen.step, "micro_batch",
                                              (json_int_t)rank->seen.micro_batch, "lives",
                                              rank->pid && !rank->is_gone));
    }
    return list;
}

/* The least step that all ranks have done. */
static json_int_t step_of(const launcher_job *job) {
    json_int_t least = -1;
    for (int r = 0; r < job->ranks; r++)
        if (least < 0 || (json_int_t)job->members[r].seen.step < least)
            least = (json_int_t)job->members[r].seen.step;
    return least;
}

static json_t *describe(const launcher_run *run, const launcher_job *job, const char *state) {
    return json_pack("{s:b,s:s,s:i,s:i,s:i,s:I,s:I,s:i,s:i,s:s,s:o,s:o}", "ok", 1, "state", state,
                     "pid", (int)getpid(), "start", run->start, "ranks", job ? job->ranks : 0,
                     "step", job ? step_of(job) : (json_int_t)-1, "saved_step",
                     (json_int_t)run->budget.published, "failures", run->recovery.failures,
                     "planned", run->recovery.planned, "resumed", job ? job->resumed : "", "hosts",
                     launcher_cluster_status(run->cluster), "members",
                     job ? list_ranks(job) : json_array());
}

static void wait_for(launcher_run *run, const launcher_job *job, uint64_t client, uint64_t save) {
    const uint64_t published = job ? job->members[0].seen.published : 0;
    if (run->n_waiting < LAUNCHER_WAITING)
        run->waiting[run->n_waiting++] =
            (launcher_waiting){client, save, run->start, published, run->told.tells};
    else
        refuse(run, client, "too many requests wait already: try again later");
}

static void ask_to_save(launcher_run *run, launcher_job *job, uint64_t client) {
    const int is_early =
        job && !job->told->tells && launcher_watched_find_train(run->options->program);
    if (!job || job->seen < job->ranks || is_early) {
        refuse(run, client, "the ranks are not there yet, or not any more: try again later");
        return;
    }
    if (!job->told->tells) { /* of such a program only this is known */
        launcher_job_signal_ranks(job, SIGUSR1);
        launcher_control_answer(run->control, client,
                                json_pack("{s:b,s:s}", "ok", 1, "sent", "SIGUSR1"));
        return;
    }
    run->saves_asked++;
    launcher_job_tell(
        job, json_pack("{s:s,s:I}", "kind", "save", "number", (json_int_t)run->saves_asked));
    wait_for(run, job, client, run->saves_asked);
}

static int ask_to_resize(launcher_run *run, const launcher_job *job, uint64_t client, int ranks) {
    char why[512];
    if (launcher_cluster_resize(run->cluster, ranks, why, sizeof why) != 0) {
        refuse(run, client, why);
        return 0;
    }
    if (job && job->ranks == ranks) {
        launcher_control_answer(run->control, client,
                                json_pack("{s:b,s:i}", "ok", 1, "ranks", ranks));
        return 0;
    }
    wait_for(run, job, client, 0);
    return LAUNCHER_ASKED_RESIZE;
}

/* Takes the requests that have come. `job` NULL: none is under way. `state` is what status says. */
static int launcher_requests_take(launcher_run *run, launcher_job *job, const char *state) {
    launcher_request request;
    int asked = 0;
    while (run->control && launcher_control_next(run->control, &request)) {
        switch (request.what) {
        case LAUNCHER_ASK_STATUS:
            launcher_control_answer(run->control, request.client, describe(run, job, state));
            break;
        case LAUNCHER_ASK_SAVE:
            ask_to_save(run, job, request.client);
            break;
        case LAUNCHER_ASK_RESIZE:
            asked |= ask_to_resize(run, job, request.client, request.ranks);
            break;
        case LAUNCHER_ASK_STOP:
            asked |= LAUNCHER_ASKED_STOP;
            launcher_control_answer(run->control, request.client,
                                    json_pack("{s:b,s:s}", "ok", 1, "state", "stopping"));
            break;
        }
    }
    return asked;
}

/* Answers those of a kind for which `answer` gives one. */
static void answer_waiting(launcher_run *run,
                           json_t *(*answer)(const void *ctx, const launcher_waiting *waiting),
                           const void *ctx) {
    int n = 0;
    for (int i = 0; i < run->n_waiting; i++) {
        json_t *text = answer(ctx, &run->waiting[i]);
        if (text)
            launcher_control_answer(run->control, run->waiting[i].client, text);
        else
            run->waiting[n++] = run->waiting[i];
    }
    run->n_waiting = n;
}

static json_t *answer_saved(const void *ctx, const launcher_waiting *waiting) {
    const launcher_job *job = ctx;
    const launcher_seen *seen = &job->members[0].seen;
    if (!waiting->save || seen->saves_done < waiting->save) return NULL;
    if (!seen->published)
        return json_pack("{s:s}", "error", "the ranks could not save: their messages say why");
    return json_pack("{s:b,s:I}", "ok", 1, "step", (json_int_t)seen->published - 1);
}

/* Answers saves that the ranks have done. */
static void launcher_requests_saved(launcher_run *run, const launcher_job *job) {
    answer_waiting(run, answer_saved, job);
}

/* A start whose ranks are there. */
typedef struct ready_start {
    const launcher_job *job;
    int start;
} ready_start;

/* Not by the start in which it was asked for, which may be ending. */
static json_t *answer_resized(const void *ctx, const launcher_waiting *waiting) {
    const ready_start *ready = ctx;
    if (waiting->save || waiting->start >= ready->start) return NULL;
    return json_pack("{s:b,s:i}", "ok", 1, "ranks", ready->job->ranks);
}

static json_t *answer_started(const void *ctx, const launcher_waiting *waiting) {
    return waiting->tells ? NULL : answer_resized(ctx, waiting);
}

/* Answers those who wait for another number of ranks of a program that tells nothing: they are
 * there. */
static void launcher_requests_started(launcher_run *run, const launcher_job *job) {
    answer_waiting(run, answer_started, &(ready_start){job, run->start});
}

/* Answers those who wait for another number of ranks: the new start has done its first step. */
static void launcher_requests_resized(launcher_run *run, const launcher_job *job) {
    answer_waiting(run, answer_resized, &(ready_start){job, run->start});
}

static json_t *answer_refused(const void *ctx, const launcher_waiting *waiting) {
    return waiting->save ? NULL : json_pack("{s:s}", "error", (const char *)ctx);
}

void launcher_requests_refused(launcher_run *run, const char *why) {
    answer_waiting(run, answer_refused, why);
}

static json_t *answer_ended(const void *ctx, const launcher_waiting *waiting) {
    const launcher_job *job = ctx;
    const uint64_t published = job->members[0].seen.published;
    if (!waiting->save) return NULL;
    if (published > waiting->published)
        return json_pack("{s:b,s:I}", "ok", 1, "step", (json_int_t)published - 1);
    return json_pack("{s:s}", "error", "the ranks have ended before they had saved");
}

/* A start has ended: its saves will not come any more. What its ranks have saved as they ended, as
 * before a resize, answers those that had asked for a save. */
static void launcher_requests_ended(launcher_run *run, const launcher_job *job) {
    answer_waiting(run, answer_ended, job);
    run->saves_asked = 0;
}

/* The event loop of one job. Events: a signal to us, a request, agents' news. mpirun itself notices
 * a rank that died and ends the others, which may take it seconds; so a rank that ends before it
 * has told how ends the start at once. Of programs that tell nothing mpirun's word is waited for.
 * We step in where it does not end after its last rank, or where a stop that was asked for takes
 * too long. mpirun's status is the ranks' own and known from nowhere else, hence it is killed last.
 */

enum {
    SETTLE_MS = 3000,     /* if no other rank appears for so long, the missing ones have ended */
    MPIRUN_LINGER_S = 10, /* mpirun's own end after its last rank's */
    DRAIN_S = 1,          /* mpirun's own end after a failure: it passes on what ranks have said */
    ANSWER_S = 30,        /* until agents of all hosts are there */
    STACKS_S = 10,        /* for a process */
    ALL_STACKS_S = 60,
    LOOK_S = 1,  /* between two looks at the host file */
    SILENT_S = 2 /* to answer, after a lease without a word */
};

typedef struct monitor {
    launcher_run *run;
    launcher_job *job;
    launcher_stall *stall;
    struct pollfd *polled;
    size_t room;
    double begun_at;
    int announced;
    double settled_at;   /* when no more ranks are waited for; 0: mpirun has started none yet */
    int seen;            /* at the last look */
    double kill_at;      /* when the ranks get SIGKILL; 0: never */
    double linger_at;    /* when what has outlived all ranks gets SIGKILL; 0: a rank lives */
    double fail_at;      /* after a failure: when mpirun is not waited for any more; 0: none */
    double stacks_until; /* when stacks are not waited for any more; 0: none are asked for */
    double look_at;      /* when to look at the host file */
    int orphans_killed;
    int signalled; /* to stop: the next such signal kills */
    launcher_result result;
} monitor;

static void announce(monitor *w) {
    const launcher_job *job = w->job;
    char *line = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&line, &bytes);
    if (!out) return;
    /* the line's form is promised to scripts, for one rank too */
    fprintf(out, "dcp-run: start %d, %d ranks, pids", w->run->start, job->ranks);
    for (int r = 0; r < job->ranks; r++)
        if (job->members[r].pid) fprintf(out, " %d", (int)job->members[r].pid);
    if (job->seen == 0)
        fprintf(out, " (ended at once)");
    else if (job->seen < job->ranks)
        fprintf(out, " (%d ended at once)", job->ranks - job->seen);
    fputc('\n', out);
    /* in one write: the ranks write to stderr as well */
    if (fclose(out) == 0) fwrite(line, 1, bytes, stderr);
    free(line);
    w->announced = 1;
}

/* How ranks are asked to end: on the board, or by SIGTERM where they tell nothing. */
static void ask_to_end(monitor *w, ranks_end_request how) {
    /* ranks that are not set up would end without a save of what they have in memory alone */
    const int is_patient = how == RANKS_END_REQUEUE && w->run->was_planned &&
                           launcher_watched_is_train(w->run->options->program[0]);
    launcher_job_tell(w->job, json_pack("{s:s,s:i,s:b}", "kind", "end_request", "how", (int)how,
                                        "patient", is_patient));
    w->kill_at = program_now_s() + w->run->options->grace_s;
}

static void ask_to_requeue(monitor *w, const char *why) {
    if (w->result.requeue) return;
    fprintf(stderr, "dcp-run: %s: asking the ranks to save and end, to be run again\n", why);
    w->result.requeue = w->result.stop_asked = 1;
    ask_to_end(w, RANKS_END_REQUEUE);
}

static void ask_to_stop(monitor *w, int signal) {
    if (!w->result.stop_asked && launcher_slurm_is_preempted()) {
        w->signalled = 1;
        ask_to_requeue(w, "Slurm takes the job's nodes for another one");
        return;
    }
    if (w->result.requeue && !w->signalled) { /* a warning came first: time is up in Slurm */
        fprintf(stderr, "dcp-run: SIG%s: the ranks are asked already; another one kills them\n",
                sigabbrev_np(signal));
        w->signalled = 1;
        return;
    }
    if (w->result.stop_asked) {
        w->kill_at = program_now_s();
        return;
    }
    fprintf(stderr,
            "dcp-run: SIG%s: asking the ranks to save and end; what is left after %g s "
            "(--grace), or at a second signal, is killed\n",
            sigabbrev_np(signal), w->run->options->grace_s);
    w->result.stop_asked = 1;
    w->kill_at = program_now_s() + w->run->options->grace_s;
    launcher_job_signal_ranks(w->job, SIGTERM);
}

static void take_signals(monitor *w) {
    for (int signal; (signal = launcher_signals_next(&w->run->signals)) != 0;) {
        if (launcher_signals_is_stop(signal)) ask_to_stop(w, signal);
        if (signal == SIGUSR1) launcher_job_signal_ranks(w->job, SIGUSR1);
        if (signal == SIGUSR2) ask_to_requeue(w, "SIGUSR2");
    }
}

/* Ends the start so that the next one has other ranks, or other hosts. */
static void plan_another(monitor *w, const char *why) {
    if (w->result.planned || w->result.stop_asked || w->fail_at > 0) return;
    fprintf(stderr, "dcp-run: %s: asking the ranks to save, and to go on as others\n", why);
    w->result.planned = 1;
    launcher_recovery_notice(&w->run->recovery, 0, program_now_s(), 1);
    ask_to_end(w, RANKS_END_RESIZE);
}

static const char *state_of(const monitor *w) {
    if (w->result.stop_asked) return "stopping";
    if (w->result.planned) return "resizing";
    if (w->fail_at > 0) return "failed";
    return w->job->seen < w->job->ranks ? "starting" : "running";
}

static void take_requests(monitor *w) {
    const int asked = launcher_requests_take(w->run, w->job, state_of(w));
    if (asked & LAUNCHER_ASKED_RESIZE) plan_another(w, "resize");
    if ((asked & LAUNCHER_ASKED_STOP) && !w->result.stop_asked) {
        fprintf(stderr, "dcp-run: stop: asking the ranks to save and end\n");
        w->result.stop_asked = 1;
        ask_to_end(w, RANKS_END_STOP);
    }
    launcher_requests_saved(w->run, w->job);
}

static void look_for_ranks(monitor *w) {
    const launcher_job *job = w->job;
    const int found = job->seen > w->seen;
    w->seen = job->seen;
    if (w->announced) return;
    if (found || (job->launched && w->settled_at == 0))
        w->settled_at = program_now_s() + SETTLE_MS * 1e-3;
    if (job->seen < job->ranks && (w->settled_at == 0 || program_now_s() < w->settled_at)) return;
    announce(w);
    launcher_requests_started(w->run, job);
}

/* What ranks tell by the board: progress, steps that are published, and phases. */
static void take_news(monitor *w) {
    const double now = program_now_s();
    for (int r = 0; r < w->job->ranks; r++) {
        const launcher_seen *seen = &w->job->members[r].seen;
        const launcher_beat beat = {.progress = seen->progress,
                                    .step = seen->step,
                                    .micro_batch = seen->micro_batch,
                                    .phase = seen->phase,
                                    .slowest_s = (double)seen->slowest_ns * 1e-9};
        if (seen->told) launcher_stall_beat(w->stall, r, &beat, now);
        if (seen->published && launcher_budget_told(&w->run->budget, (int64_t)seen->published - 1))
            launcher_cluster_progressed(w->run->cluster);
    }
    const int is_training = launcher_recovery_look(&w->run->recovery, w->job);
    if (is_training && !w->result.planned) launcher_requests_resized(w->run, w->job);
}

/* The start is no use any more: everything is killed, and mpirun may say what it has heard. */
static void fail_start(monitor *w, double alive_at) {
    if (w->fail_at > 0) return;
    launcher_recovery_notice(&w->run->recovery, alive_at, program_now_s(), 0);
    w->fail_at = program_now_s() + DRAIN_S;
    launcher_guard_wake(&w->job->guard);
    launcher_job_tell(w->job, json_pack("{s:s}", "kind", "kill_ranks"));
    launcher_job_tell_local(w->job, "wake_child");
}

static void fail_lost(monitor *w) {
    launcher_job *job = w->job;
    const int is_silent = program_now_s() - job->alive_at >= LAUNCHER_LEASE_S;
    job->lost_answers.family = w->run->family;
    job->lost_answers.hosts[job->lost_answers.n++] = job->lost;
    launcher_probe_begin(&job->lost_answers, is_silent ? SILENT_S : LAUNCHER_PROBE_S);
    fail_start(w, job->alive_at);
}

static void look_for_failures(monitor *w) {
    if (w->fail_at > 0 || launcher_job_is_done(w->job)) return;
    if (w->job->dead >= 0) fail_start(w, 0);
    if (w->job->lost && w->fail_at == 0) fail_lost(w);
    if (w->job->remote_up < w->job->remote_hosts && program_now_s() > w->begun_at + ANSWER_S) {
        fprintf(stderr, "dcp-run: %zu of %zu other hosts do not answer\n",
                w->job->remote_hosts - w->job->remote_up, w->job->remote_hosts);
        fail_start(w, 0);
    }
}

static void print_stacks(void *ctx, const char *host, const char *text) {
    const monitor *w = ctx;
    char *titled = NULL;
    if (asprintf(&titled, "dcp-run: stacks of the ranks%s%s:\n%s", host ? " on " : "",
                 host ? host : "", text) >= 0)
        launcher_output_stacks(w->run->output, titled);
    free(titled);
}

/* Nobody minds a stall any more. */
static int stall_is_moot(const monitor *w) {
    return w->fail_at > 0 || w->stacks_until > 0 || w->result.stop_asked;
}

/* No rank makes progress: first their stacks, then their end. */
static void look_for_stall(monitor *w) {
    const double now = program_now_s(), deadline = launcher_stall_deadline(w->stall);
    if (w->stacks_until > 0) {
        if (w->job->stacks_asked > 0 && now <= w->stacks_until) return;
        if (w->job->stacks_asked > 0)
            fprintf(stderr, "dcp-run: %d hosts have not told the stacks of their ranks in %d s\n",
                    w->job->stacks_asked, ALL_STACKS_S);
        fail_start(w, w->stall->moved_at);
        return;
    }
    if (deadline == 0 || now < deadline || stall_is_moot(w)) return;
    const int behind = launcher_stall_behind(w->stall);
    w->result.stalled = 1;
    w->result.behind = behind;
    fprintf(stderr, "dcp-run: no rank has made progress for %.0f s (--stall)",
            now - w->stall->moved_at);
    if (behind >= 0)
        fprintf(stderr, "; rank %d is behind: step %llu, micro-batch %llu", behind,
                (unsigned long long)w->job->members[behind].seen.step,
                (unsigned long long)w->job->members[behind].seen.micro_batch);
    fputc('\n', stderr);
    w->stacks_until = now + ALL_STACKS_S;
    w->job->take_stacks = print_stacks;
    w->job->stacks_ctx = w;
    launcher_job_ask_stacks(w->job, STACKS_S);
}

static void look_at_hosts(monitor *w) {
    if (program_now_s() < w->look_at) return;
    w->look_at = program_now_s() + LOOK_S;
    if (launcher_cluster_refresh(w->run->cluster)) plan_another(w, "the hosts have changed");
}

/* The ranks did not end in time. mpirun tidies up after them by itself, where it has any; for one
 * that SIGKILL does not end it would wait for ever. */
static void kill_ranks(monitor *w) {
    fprintf(stderr, "dcp-run: killing what is left of start %d\n", w->run->start);
    if (w->job->alive == 0 || w->result.killed) launcher_job_tell_local(w->job, "kill_child");
    w->result.killed = 1;
    launcher_job_tell(w->job, json_pack("{s:s}", "kind", "kill_ranks"));
}

/* All ranks have ended, mpirun has not. Only it knows their status, so it is killed last. */
static void kill_lingering(monitor *w) {
    if (w->orphans_killed) {
        fprintf(stderr, "dcp-run: killing mpirun, which has outlived all ranks of start %d\n",
                w->run->start);
        launcher_job_tell_local(w->job, "kill_child");
    } else {
        fprintf(stderr, "dcp-run: killing what the ranks of start %d left running\n",
                w->run->start);
        launcher_job_tell(w->job, json_pack("{s:s}", "kind", "kill_orphans"));
        w->orphans_killed = 1;
    }
    w->linger_at = program_now_s() + MPIRUN_LINGER_S;
}

/* The earlier of two times, either of which may be 0: never. */
static double earlier(double a, double b) {
    if (a == 0 || b == 0) return a + b;
    return a < b ? a : b;
}

static void enforce_deadlines(monitor *w) {
    const int all_ended = w->announced && (w->job->alive == 0 || launcher_job_is_done(w->job));
    if (!all_ended) w->linger_at = 0;
    if (all_ended && w->linger_at == 0) w->linger_at = program_now_s() + MPIRUN_LINGER_S;
    const double deadline = earlier(w->kill_at, w->linger_at);
    if (deadline == 0 || program_now_s() < deadline) return;
    if (all_ended)
        kill_lingering(w);
    else
        kill_ranks(w);
    if (w->kill_at > 0) w->kill_at = program_now_s() + MPIRUN_LINGER_S;
}

static int timeout_ms(const monitor *w) {
    double next = w->look_at;
    if (!w->announced && w->settled_at > 0) next = earlier(next, w->settled_at);
    next = earlier(next, earlier(w->kill_at, w->linger_at));
    next = earlier(next, earlier(w->fail_at, w->stacks_until));
    if (!stall_is_moot(w)) next = earlier(next, launcher_stall_deadline(w->stall));
    double left = (next - program_now_s()) * 1e3;
    if (w->job->remote_hosts && left > 250) left = 250; /* heartbeats */
    return left < 0 ? 0 : (int)left + 1;
}

/* Everything that may say something; how many. */
static size_t list_polled(monitor *w) {
    const size_t needed = 4 + w->job->n_links + (size_t)w->job->ranks;
    if (needed > w->room) {
        struct pollfd *more = realloc(w->polled, 2 * needed * sizeof *more);
        if (more) w->polled = more;
        if (more) w->room = 2 * needed;
    }
    if (w->room < 4) return 0;
    w->polled[0] = (struct pollfd){.fd = w->run->signals.fd, .events = POLLIN};
    w->polled[1] = (struct pollfd){
        .fd = w->run->control ? launcher_control_fd(w->run->control) : -1, .events = POLLIN};
    w->polled[2] = (struct pollfd){.fd = w->run->output ? launcher_output_fd(w->run->output) : -1,
                                   .events = POLLIN};
    return 3 + launcher_job_list(w->job, w->polled + 3, w->room - 3);
}

static int is_over(const monitor *w) {
    return !w->job->mpirun_lives || (w->fail_at > 0 && program_now_s() >= w->fail_at);
}

launcher_result launcher_monitor_job(launcher_run *run, launcher_job *job) {
    monitor w = {.run = run, .job = job, .begun_at = program_now_s()};
    w.look_at = w.begun_at + LOOK_S;
    w.stall = malloc(sizeof *w.stall);
    if (!w.stall) {
        fprintf(stderr, "dcp-run: out of memory\n");
        return w.result;
    }
    launcher_stall_begin(w.stall, run->options->stall_s, job->ranks);
    if (run->requeue_asked) ask_to_requeue(&w, "as the last start was asked");
    while (!is_over(&w)) {
        const size_t n = list_polled(&w);
        if (poll(w.polled, n, timeout_ms(&w)) < 0 && errno != EINTR) break;
        take_signals(&w);
        if (run->output) launcher_output_take(run->output);
        launcher_job_hear(job);
        look_for_ranks(&w);
        take_news(&w);
        take_requests(&w);
        look_for_failures(&w);
        look_for_stall(&w);
        look_at_hosts(&w);
        if (job->mpirun_lives) enforce_deadlines(&w);
    }
    if (!w.announced) announce(&w);
    w.result.no_answer = job->remote_up < job->remote_hosts;
    launcher_requests_ended(run, job);
    free(w.polled);
    free(w.stall);
    return w.result;
}

int launcher_monitor_pause(launcher_run *run, double seconds, int *requeue) {
    const double end = program_now_s() + seconds;
    int stop = 0;
    for (double left = seconds; !stop; left = end - program_now_s()) {
        struct pollfd polled[] = {
            {.fd = run->signals.fd, .events = POLLIN},
            {.fd = run->control ? launcher_control_fd(run->control) : -1, .events = POLLIN}};
        poll(polled, 2, left > 0 ? (int)(left * 1e3) + 1 : 0);
        for (int signal; (signal = launcher_signals_next(&run->signals)) != 0;) {
            stop |= launcher_signals_is_stop(signal) || signal == SIGUSR2;
            if (signal == SIGUSR2) *requeue = 1;
        }
        if (launcher_requests_take(run, NULL, "waiting") & LAUNCHER_ASKED_STOP) stop = 1;
        if (left <= 0) break;
    }
    if (stop && launcher_slurm_is_preempted()) *requeue = 1;
    return stop;
}
