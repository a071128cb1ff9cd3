#include "launcher/requests.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "launcher/watched.h"

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

int launcher_requests_take(launcher_run *run, launcher_job *job, const char *state) {
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

void launcher_requests_saved(launcher_run *run, const launcher_job *job) {
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

void launcher_requests_started(launcher_run *run, const launcher_job *job) {
    answer_waiting(run, answer_started, &(ready_start){job, run->start});
}

void launcher_requests_resized(launcher_run *run, const launcher_job *job) {
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

void launcher_requests_ended(launcher_run *run, const launcher_job *job) {
    answer_waiting(run, answer_ended, job);
    run->saves_asked = 0;
}
