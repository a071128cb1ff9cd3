/* --trace: the timelines of all ranks in one file, in Chrome's trace event format, which
 * ui.perfetto.dev and chrome://tracing open. Each rank is shown as a process. Its threads show the
 * computation, the communication that delays it, saves, sums of gradients and gathers in flight,
 * and fills of stores. Rank 0 also has a thread with the numbered steps. Times are microseconds
 * since the start of the trace, by rank 0's clock. The other ranks' clocks are compared with that
 * clock once, by the fastest of a few round trips.
 *
 * The file is complete JSON after every flush, whatever happens later. A rank needs memory for the
 * events of one flush; rank 0 needs twice as much. */
#pragma once

#include <mpi.h>
#include <stdbool.h>

#include "timeline/timeline.h"

typedef struct report_trace report_trace;

/* Checks that `path` can be a trace. DCP_ERR_ARG: it exists and is not one. */
int report_trace_check(const char *path, dcp_error *err);
/* Collective. Makes the file. Replaces an existing file if it is a trace; otherwise returns
 * DCP_ERR_ARG. room: the largest number of events that a rank has for one flush. begin: rank 0's
 * MPI_Wtime() before anything that the trace is to show; times count from it. */
int report_trace_open(const char *path, MPI_Comm comm, size_t room, double begin,
                      report_trace **out, dcp_error *err);
/* To be called on rank 0 before the step's flush. Adds the step, which lasted from `begin` to
 * `end`. */
void report_trace_step(report_trace *t, uint64_t step, double loss, double begin, double end);
/* Collective. Moves the ranks' events to the file, and clears them. DCP_ERR_IO, on rank 0 and only
 * once: the file could not be written; later events are lost. */
int report_trace_flush(report_trace *t, timeline *tl, dcp_error *err);
/* Collective. Returns on rank 0 the number of all ranks' events that found no room. */
uint64_t report_trace_dropped(const report_trace *t, const timeline *tl);
/* Returns true, on rank 0, if everything could be written. NULL: true. */
bool report_trace_is_complete(const report_trace *t);
void report_trace_close(report_trace *t);
