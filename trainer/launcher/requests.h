/* What a run is requested to do while it runs: by signals, by `dcp-run ctl`, by other hosts. */
#pragma once

#include "launcher/run.h"

/* Passes signals to dcp-run on to the ranks: those that request the end, and SIGUSR1. */
void launcher_requests_take_signals(launcher_run *run);
/* Records signals that request the end; there are no ranks. */
void launcher_requests_note_signals(launcher_run *run);
/* Takes the requests of `dcp-run ctl` that have arrived. */
void launcher_requests_take(launcher_run *run);

/* Requests the ranks to save and end, so that the next start has other ranks or other hosts. Does
 * nothing if they have been requested to end, or if the start has failed. */
void launcher_requests_plan(launcher_run *run, const char *why);
/* Requests the ranks to save and end, to be run again. spares_ranks: the next signal to stop does
 * not count as the second one. */
void launcher_requests_requeue(launcher_run *run, const char *why, bool spares_ranks);

/* Answer requests that wait: saves that the ranks have done; resizes of a program that reports
 * nothing, as its ranks have appeared; resizes of any program, as its ranks have done a step; saves
 * that will not come, as the start has ended; resizes that the ranks refuse. */
void launcher_requests_answer_saves(launcher_run *run);
void launcher_requests_answer_started(launcher_run *run);
void launcher_requests_answer_resized(launcher_run *run);
void launcher_requests_answer_ended(launcher_run *run);
void launcher_requests_refuse_resize(launcher_run *run, const char *why);
