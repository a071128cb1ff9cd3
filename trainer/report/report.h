/* What a run tells while it goes on: a line a step, warnings of ranks that differ, and a table at
 * the end. */
#pragma once

#include "report/console.h"
#include "step/evaluate.h"
#include "step/update.h"
#include "timeline/timeline.h"

typedef struct run_report {
    trainer *t;
    struct report_metrics *lines; /* on rank 0; NULL: none */
    report_console console;       /* on rank 0 */
    struct report_balance *ranks; /* on rank 0 */
    double *usage;                /* [5 * world] on rank 0: as report.c divides it */
    struct report_trace *trace;   /* NULL: none is asked for */
    int lines_fail;               /* the last line could not be written */
    int is_mute;                  /* stdout has failed */
    uint64_t steps;               /* told of */
    uint64_t skipped;             /* batches of which nothing counts */
    double begin, line_at;        /* when the run began; when the last line was written */
    double spent[TIMELINE_SPENT]; /* the timeline's seconds at the last line */
    uint64_t sent, sent_across;   /* bytes sent until the last line */
} run_report;

/* Collective, as all below. Opens the metrics file, and the trace's. */
int report_begin(run_report *r, trainer *t, dcp_error *err);
/* So many seconds since the last line were no part of a step. */
void report_leave_out(run_report *r, double seconds);

/* evaluated: of the evaluation that the step ended with, if one is done. */
void report_step(run_report *r, const step_result *result, const step_evaluation *evaluated);
/* An evaluation of the step that the run begins with, which took so many seconds: it becomes part
 * of that step's line. */
void report_evaluation(run_report *r, const step_evaluation *evaluated, double seconds);
/* Returns the run's exit status: PROGRAM_FAILED where it was `status` PROGRAM_DONE and lines for
 * stdout or the trace were lost. */
int report_end(run_report *r, int status);
