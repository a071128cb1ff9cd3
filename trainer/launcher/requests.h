/* Answers to `dcp-run ctl`. */
#pragma once

#include "launcher/job.h"
#include "launcher/run.h"

/* What requests ask of the start that is under way, as flags. */
enum { LAUNCHER_ASKED_RESIZE = 1, LAUNCHER_ASKED_STOP = 2 };

/* Takes the requests that have come. `job` NULL: none is under way. `state` is what status says. */
int launcher_requests_take(launcher_run *run, launcher_job *job, const char *state);
/* Answers saves that the ranks have done. */
void launcher_requests_saved(launcher_run *run, const launcher_job *job);
/* Answers those who wait for another number of ranks of a program that tells nothing: they are
 * there. */
void launcher_requests_started(launcher_run *run, const launcher_job *job);
/* Answers those who wait for another number of ranks: the new start has done its first step. */
void launcher_requests_resized(launcher_run *run, const launcher_job *job);
/* Answers them that it has failed. */
void launcher_requests_refused(launcher_run *run, const char *why);
/* A start has ended: its saves will not come any more. What its ranks have saved as they ended, as
 * before a resize, answers those that had asked for a save. */
void launcher_requests_ended(launcher_run *run, const launcher_job *job);
