/* --trace: the timelines of all ranks in one file, in Chrome's trace event format, which
 * ui.perfetto.dev and chrome://tracing open. A process is a rank; its threads are, on rank 0, the
 * steps by their numbers, and the computation, the communication that holds it up, saves, gathers
 * on their way, and fills of stores. Times are microseconds since the start of the trace, by rank
 * 0's clock: the others' are compared with it once, by the fastest of a few round trips.
 *
 * The file is whole JSON after every flush, whatever happens then. A rank needs memory for the
 * events of one flush, rank 0 twice. */
#pragma once

#include <mpi.h>

#include "timeline/timeline.h"

typedef struct report_trace report_trace;

/* DCP_ERR_ARG: a file of that name is there, and no trace. */
int report_trace_check(const char *path, dcp_error *err);
/* Collective. Makes the file; one that is there is replaced if it is a trace, else DCP_ERR_ARG.
 * `room` events of a rank find room in a flush. Times count from `begin`, rank 0's MPI_Wtime()
 * before anything that is to be in the trace. */
int report_trace_open(const char *path, MPI_Comm comm, size_t room, double begin,
                      report_trace **out, dcp_error *err);
/* On rank 0, before the step's flush: a slice for the step, which took from `begin` to `end`. */
void report_trace_step(report_trace *t, uint64_t step, double loss, double begin, double end);
/* Collective: moves the ranks' events to the file, and clears them. DCP_ERR_IO, on rank 0 and once:
 * the file could not be written; what follows is lost. */
int report_trace_flush(report_trace *t, timeline *tl, dcp_error *err);
/* Events of all ranks that found no room, on rank 0; collective. */
uint64_t report_trace_dropped(const report_trace *t, const timeline *tl);
/* Whether everything could be written, on rank 0; NULL: yes. */
int report_trace_is_whole(const report_trace *t);
void report_trace_close(report_trace *t);
