/* Requests to a run by signals, by `dcp-run ctl`, and by a changed host file. */
#pragma once

#include <stdbool.h>

#include "launcher/run.h"

/* Handles the signals that dcp-run has received: asks the ranks to end, or passes SIGUSR1 on to
 * them. */
void launcher_requests_handle_signals(launcher_run *run);
/* Records received signals that request the run's end. To be called between two starts, when there
 * are no ranks. */
void launcher_requests_record_signals(launcher_run *run);
/* Handles the requests of `dcp-run ctl` that have arrived. */
void launcher_requests_handle(launcher_run *run);

/* Asks the ranks to save and end, so that the next start can have a different number or placement
 * of ranks. If they have already been asked to, only passes on how many hosts the run leaves now.
 * Does nothing if they have been asked to end for another reason, or if the start has failed. */
void launcher_requests_plan(launcher_run *run, const char *why);
/* Passes on to the present start the request to end that came too late for the last one. */
void launcher_requests_repeat(launcher_run *run);
/* Asks the ranks to save and end, because the run is to be run again later. spares_ranks: the next
 * signal to stop does not count as a second one, which would kill the ranks. */
void launcher_requests_requeue(launcher_run *run, const char *why, bool spares_ranks);

/* News of the present start, for requests that are waiting for an answer. */
typedef enum launcher_news {
    LAUNCHER_NEWS_REPORTS,  /* the ranks may have reported a save */
    LAUNCHER_NEWS_APPEARED, /* the ranks exist, which completes a resize if they report nothing */
    LAUNCHER_NEWS_STEPPED,  /* the ranks have done a step, which completes a resize */
    LAUNCHER_NEWS_ENDED     /* the ranks have ended, and will not save any more */
} launcher_news;

/* Answers the waiting requests that `news` completes or fails. */
void launcher_requests_answer(launcher_run *run, launcher_news news);
/* Answers all waiting resizes with the error `why`, because the ranks have rejected the new number
 * of ranks. */
void launcher_requests_refuse_resize(launcher_run *run, const char *why);
