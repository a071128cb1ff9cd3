/* What a run prints while it goes on, and ranks that are slower or larger than the others. */
#pragma once

#include <dcp/error.h>

#include "fsdp/sum_order.h"
#include "report/console.h"
#include "step/evaluate.h"
#include "step/update.h"
#include "timeline/timeline.h"

/* Finding a rank that is slower, or larger, than the others: by more than a fifth of their mean.
 *
 * Times are compared per micro-batch over REPORT_BALANCE_STEPS steps. A rank is slow if it was so
 * in most of these steps and in their sum, and if that costs a hundredth of a second a step. A rank
 * is large if it is also at least 64 MiB above the mean. A warning ends once the rank is less than
 * a tenth above the mean. */

enum { REPORT_BALANCE_STEPS = 10 };

typedef enum report_balance_kind {
    REPORT_BALANCE_SLOW,
    REPORT_BALANCE_LARGE,
    REPORT_BALANCE_KINDS
} report_balance_kind;

typedef struct report_balance report_balance;

/* Called when a rank becomes slow or large (is 1), and when it no longer is (is 0). ratio: to the
 * others' mean. */
typedef void (*report_balance_tell_fn)(void *ctx, int rank, report_balance_kind kind, int is,
                                       double ratio);

/* NULL: out of memory. */
report_balance *report_balance_create(const fsdp_micro_batches *micro_batches,
                                      report_balance_tell_fn tell, void *ctx);
void report_balance_destroy(report_balance *b);

/* A step's: what each rank spent computing, and its largest memory so far; [world] each. */
void report_balance_step(report_balance *b, const double *compute_s, const double *bytes);

/* What a run tells while it goes on: a line a step, warnings of ranks that differ, and a table at
 * the end. */

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

/* --plot: loss, speed and what saves cost, drawn from a metrics file. */

/* Draws `metrics` as the SVG file `path`, which is made, or is a drawing that is replaced.
 * DCP_ERR_ARG: no metrics, or another file is there; DCP_ERR_IO: it could not be written. */
int report_plot(const char *metrics, const char *path, dcp_error *err);
