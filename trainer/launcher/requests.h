/* Requests to a run by signals, by `dcp-run ctl`, and by other hosts. */
#pragma once

#include <stdbool.h>

#include "launcher/run.h"

/* Passes signals to dcp-run on to the ranks: those that request the end, and SIGUSR1. */
void launcher_requests_take_signals(launcher_run *run);
/* Records signals that request the end; there are no ranks. */
void launcher_requests_note_signals(launcher_run *run);
/* Handles the requests of `dcp-run ctl` that have arrived. */
void launcher_requests_take(launcher_run *run);

/* Requests the ranks to save and end, so that the next start has other ranks or other hosts. Does
 * nothing if they have been requested to end, or if the start has failed. */
void launcher_requests_plan(launcher_run *run, const char *why);
/* Requests the ranks to save and end, to be run again. spares_ranks: the next signal to stop does
 * not count as the second one. */
void launcher_requests_requeue(launcher_run *run, const char *why, bool spares_ranks);

/* News of the present start, for requests that wait. */
typedef enum launcher_news {
    LAUNCHER_NEWS_REPORTS,  /* the ranks may have saved */
    LAUNCHER_NEWS_APPEARED, /* the ranks exist, which answers a resize if they report nothing */
    LAUNCHER_NEWS_STEPPED,  /* they have done a step, which answers a resize */
    LAUNCHER_NEWS_ENDED     /* they have ended, so they will not save any more */
} launcher_news;

/* Answers the requests that the news answer. */
void launcher_requests_answer(launcher_run *run, launcher_news news);
/* Answers all resizes: the ranks have rejected their number. */
void launcher_requests_refuse_resize(launcher_run *run, const char *why);
