#include "launcher/requests.h"

#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "launcher/mpirun.h"
#include "programs/program.h"

/* Returns the name of the state of a run in `dcp-run ctl status`. A request to end takes precedence
 * over the phase. */
static const char *state_name(const launcher_start *start) {
    static const char *const by_phase[LAUNCHER_PHASES] = {[LAUNCHER_BETWEEN] = "waiting",
                                                          [LAUNCHER_STARTING] = "starting",
                                                          [LAUNCHER_RUNNING] = "running",
                                                          [LAUNCHER_STALLED] = "running",
                                                          [LAUNCHER_FAILED] = "failed"};
    static const char *const by_request[] = {[RANKS_END_RESIZE] = "resizing",
                                             [RANKS_END_STOP] = "stopping",
                                             [RANKS_END_REQUEUE] = "stopping"};
    const bool is_ending = start->phase != LAUNCHER_BETWEEN && start->end_request != RANKS_END_NONE;
    return is_ending ? by_request[start->end_request] : by_phase[start->phase];
}

/* Requests that wait. */

static void refuse(launcher_run *run, uint64_t client, const char *why) {
    launcher_control_answer(run->control, client, json_pack("{s:s}", "error", why));
}

static void wait_for(launcher_run *run, uint64_t client, uint64_t save) {
    const launcher_start *start = &run->start;
    const bool is_between = start->phase == LAUNCHER_BETWEEN;
    if (run->n_waiting < LAUNCHER_WAITING_CLIENTS)
        run->waiting[run->n_waiting++] =
            (launcher_waiting){.client = client,
                               .save = save,
                               .start = start->number,
                               .published = is_between ? 0 : start->job.members[0].report.published,
                               .tells = start->job.end_report.reports};
    else
        refuse(run, client, "too many requests wait already: try again later");
}

/* Returns the answer to a request for a save; NULL if the client has to wait longer. */
static json_t *answer_save(const launcher_waiting *waiting, const launcher_rank_report *seen,
                           launcher_news news) {
    const bool has_ended = news == LAUNCHER_NEWS_ENDED;
    const bool is_done = news == LAUNCHER_NEWS_REPORTS && seen->saves_done >= waiting->save;
    /* saves that ranks make as they end, for example for a resize, count as well */
    const bool is_saved = has_ended ? seen->published > waiting->published : seen->published > 0;
    if (!has_ended && !is_done) return NULL;
    if (is_saved) return json_pack("{s:b,s:I}", "ok", 1, "step", (json_int_t)seen->published - 1);
    return json_pack("{s:s}", "error",
                     has_ended ? "the ranks have ended before they had saved"
                               : "the ranks could not save: their messages say why");
}

/* Returns the answer to a resize; NULL if the client has to wait longer. The start in which the
 * resize was requested does not count, because that start may be ending. */
static json_t *answer_resize(const launcher_waiting *waiting, const launcher_start *start,
                             launcher_news news) {
    const bool is_done =
        news == LAUNCHER_NEWS_STEPPED || (news == LAUNCHER_NEWS_APPEARED && !waiting->tells);
    if (!is_done || waiting->start >= start->number) return NULL;
    return json_pack("{s:b,s:i}", "ok", 1, "ranks", start->job.ranks);
}

/* Answers the waiting requests that `news` completes or fails. With a refusal, answers all waiting
 * resizes instead. */
static void answer_waiting(launcher_run *run, launcher_news news, const char *refusal) {
    const launcher_start *start = &run->start;
    int n = 0;
    for (int i = 0; i < run->n_waiting; i++) {
        const launcher_waiting *waiting = &run->waiting[i];
        json_t *answer = NULL;
        if (waiting->save && !refusal)
            answer = answer_save(waiting, &start->job.members[0].report, news);
        else if (!waiting->save && refusal)
            answer = json_pack("{s:s}", "error", refusal);
        else if (!waiting->save)
            answer = answer_resize(waiting, start, news);
        if (answer)
            launcher_control_answer(run->control, waiting->client, answer);
        else
            run->waiting[n++] = *waiting;
    }
    run->n_waiting = n;
}

void launcher_requests_answer(launcher_run *run, launcher_news news) {
    answer_waiting(run, news, NULL);
}

void launcher_requests_refuse_resize(launcher_run *run, const char *why) {
    answer_waiting(run, LAUNCHER_NEWS_ENDED, why);
}

/* Requests to the ranks to end. */

/* Returns true if the ranks must not get a signal: a signal would end ranks that are not set up
 * yet, and lose a state that was handed over to them and exists only in memory. */
static bool reads_board_only(const launcher_run *run) {
    return run->start.is_planned && launcher_watched_is_train(run->options->program[0]);
}

static void send_end_request(launcher_run *run, ranks_end_request how, bool is_patient) {
    launcher_job_send(&run->start.job,
                      json_pack("{s:s,s:i,s:i,s:b}", "kind", "end_request", "how", (int)how,
                                "dropped", launcher_cluster_dropped(run->cluster), "patient",
                                is_patient));
}

static void request_end(launcher_run *run, ranks_end_request how) {
    launcher_start *start = &run->start;
    assert(how > start->end_request);
    start->end_request = how;
    send_end_request(run, how, how >= RANKS_END_STOP && reads_board_only(run));
    /* ranks that report their progress may do a long step or evaluation before they read the
     * request; if they hang, the start stalls */
    if (how != RANKS_END_RESIZE || !start->job.end_report.reports)
        launcher_start_set_due(start, LAUNCHER_DUE_KILL, run->options->grace_s);
}

void launcher_requests_requeue(launcher_run *run, const char *why, bool spares_ranks) {
    if (run->start.end_request == RANKS_END_REQUEUE) return;
    fprintf(stderr,
            "dcp-run: %s: asking the ranks to save and end, so that the run can be started again "
            "later\n",
            why);
    run->start.spares_ranks = spares_ranks;
    request_end(run, RANKS_END_REQUEUE);
}

void launcher_requests_repeat(launcher_run *run) {
    static const char why[] = "requested during the last start";
    if (run->repeat_next == RANKS_END_REQUEUE) {
        launcher_requests_requeue(run, why, true);
    } else {
        fprintf(stderr, "dcp-run: %s: asking the ranks to save and end\n", why);
        request_end(run, RANKS_END_STOP);
    }
}

static void request_stop(launcher_run *run, int signal) {
    launcher_start *start = &run->start;
    if (start->end_request < RANKS_END_STOP && launcher_slurm_is_preempted()) {
        launcher_requests_requeue(run, "Slurm gives the job's nodes to another job", false);
    } else if (start->spares_ranks) { /* Slurm had given a warning; now the time is up */
        fprintf(stderr,
                "dcp-run: SIG%s: the ranks have been asked already; another signal kills them\n",
                sigabbrev_np(signal));
        start->spares_ranks = false;
    } else if (start->end_request >= RANKS_END_STOP) {
        launcher_start_set_due(start, LAUNCHER_DUE_KILL, 0);
    } else {
        fprintf(stderr,
                "dcp-run: SIG%s: asking the ranks to save and end; what is left after %g s "
                "(--grace), or at a second signal, is killed\n",
                sigabbrev_np(signal), run->options->grace_s);
        if (reads_board_only(run)) {
            request_end(run, RANKS_END_STOP);
            return;
        }
        start->end_request = RANKS_END_STOP;
        launcher_start_set_due(start, LAUNCHER_DUE_KILL, run->options->grace_s);
        launcher_job_signal_ranks(&start->job, SIGTERM);
    }
}

void launcher_requests_plan(launcher_run *run, const char *why) {
    launcher_start *start = &run->start;
    /* the changed plan may leave more hosts; ranks without a board must not get another signal */
    if (start->end_request == RANKS_END_RESIZE) send_end_request(run, RANKS_END_RESIZE, true);
    if (start->end_request != RANKS_END_NONE || start->phase == LAUNCHER_FAILED) return;
    fprintf(stderr,
            "dcp-run: %s: asking the ranks to save and end, so that other ranks can continue\n",
            why);
    start->handed_over = true;
    launcher_recovery_notice(run, 0, program_now_s(), true);
    request_end(run, RANKS_END_RESIZE);
}

/* Signals and requests. */

void launcher_requests_handle_signals(launcher_run *run) {
    for (int signal; (signal = launcher_signals_next(&run->signals)) != 0;) {
        if (launcher_signals_is_stop(signal)) request_stop(run, signal);
        if (signal == SIGUSR1) launcher_job_signal_ranks(&run->start.job, SIGUSR1);
        if (signal == SIGUSR2) launcher_requests_requeue(run, "SIGUSR2", true);
    }
}

void launcher_requests_record_signals(launcher_run *run) {
    launcher_start *start = &run->start;
    for (int signal; (signal = launcher_signals_next(&run->signals)) != 0;) {
        if (launcher_signals_is_stop(signal) && start->end_request < RANKS_END_STOP)
            start->end_request = RANKS_END_STOP;
        if (signal == SIGUSR2) start->end_request = RANKS_END_REQUEUE;
    }
}

static json_t *list_ranks(const launcher_job *job) {
    json_t *list = json_array();
    for (int r = 0; r < job->ranks; r++) {
        const launcher_rank *rank = &job->members[r];
        json_array_append_new(list, json_pack("{s:i,s:i,s:s?,s:I,s:I,s:b}", "rank", r, "pid",
                                              (int)rank->pid, "host", rank->host, "step",
                                              (json_int_t)rank->report.step, "micro_batch",
                                              (json_int_t)rank->report.micro_batch, "lives",
                                              rank->pid && !rank->is_gone));
    }
    return list;
}

/* The number of steps that every rank has done. */
static json_int_t least_step(const launcher_job *job) {
    json_int_t least = -1;
    for (int r = 0; r < job->ranks; r++)
        if (least < 0 || (json_int_t)job->members[r].report.step < least)
            least = (json_int_t)job->members[r].report.step;
    return least;
}

static json_t *describe(const launcher_run *run) {
    const launcher_start *start = &run->start;
    const launcher_job *job = start->phase == LAUNCHER_BETWEEN ? NULL : &start->job;
    return json_pack("{s:b,s:s,s:i,s:i,s:i,s:I,s:I,s:i,s:i,s:s,s:o,s:o}", "ok", 1, "state",
                     state_name(start), "pid", (int)getpid(), "start", start->number, "ranks",
                     job ? job->ranks : 0, "step", job ? least_step(job) : (json_int_t)-1,
                     "saved_step", (json_int_t)run->budget.published, "failures",
                     run->recovery.failures, "planned", run->recovery.planned, "resumed",
                     job ? job->resumed : "", "hosts", launcher_cluster_status(run->cluster),
                     "members", job ? list_ranks(job) : json_array());
}

static void take_save(launcher_run *run, uint64_t client) {
    launcher_start *start = &run->start;
    launcher_job *job = &start->job;
    const bool tells = job->end_report.reports;
    if (start->phase == LAUNCHER_BETWEEN || job->appeared < job->ranks ||
        (!tells && launcher_watched_find_train(run->options->program))) {
        refuse(run, client, "the ranks have not started yet, or have ended: try again later");
    } else if (!tells) { /* the program does not read requests */
        launcher_job_signal_ranks(job, SIGUSR1);
        launcher_control_answer(run->control, client,
                                json_pack("{s:b,s:s}", "ok", 1, "sent", "SIGUSR1"));
    } else {
        start->saves_requested++;
        launcher_job_send(job, json_pack("{s:s,s:I}", "kind", "save", "number",
                                         (json_int_t)start->saves_requested));
        wait_for(run, client, start->saves_requested);
    }
}

static void take_resize(launcher_run *run, uint64_t client, int ranks) {
    const bool is_between = run->start.phase == LAUNCHER_BETWEEN;
    char why[512];
    if (launcher_cluster_resize(run->cluster, ranks, why, sizeof why) != 0) {
        refuse(run, client, why);
    } else if (!is_between && run->start.job.ranks == ranks) {
        launcher_control_answer(run->control, client,
                                json_pack("{s:b,s:i}", "ok", 1, "ranks", ranks));
    } else {
        wait_for(run, client, 0);
        if (!is_between) launcher_requests_plan(run, "resize");
    }
}

static void take_stop(launcher_run *run, uint64_t client) {
    launcher_start *start = &run->start;
    launcher_control_answer(run->control, client,
                            json_pack("{s:b,s:s}", "ok", 1, "state", "stopping"));
    if (start->end_request >= RANKS_END_STOP) return;
    if (start->phase == LAUNCHER_BETWEEN) {
        start->end_request = RANKS_END_STOP;
        return;
    }
    fprintf(stderr, "dcp-run: stop: asking the ranks to save and end\n");
    request_end(run, RANKS_END_STOP);
}

void launcher_requests_handle(launcher_run *run) {
    launcher_request request;
    while (run->control && launcher_control_next(run->control, &request)) {
        switch (request.what) {
        case LAUNCHER_REQUEST_STATUS:
            launcher_control_answer(run->control, request.client, describe(run));
            break;
        case LAUNCHER_REQUEST_SAVE:
            take_save(run, request.client);
            break;
        case LAUNCHER_REQUEST_RESIZE:
            take_resize(run, request.client, request.ranks);
            break;
        case LAUNCHER_REQUEST_STOP:
            take_stop(run, request.client);
            break;
        }
    }
}
