/* The output of a run while it runs, including warnings about ranks that are slower or larger than
 * the others. */
#pragma once

#include <dcp/error.h>
#include <stdbool.h>

#include "fsdp/sum_order.h"
#include "report/console.h"
#include "step/evaluate.h"
#include "step/update.h"
#include "timeline/timeline.h"

/* Finds ranks whose time or memory exceeds the mean of the other ranks by more than a fifth.
 *
 * Times are compared per micro-batch over REPORT_BALANCE_STEPS steps. A rank is slow if its time is
 * that far above the others' mean in most of these steps and in their sum, and if this costs more
 * than a hundredth of a second per step. A rank is large if its memory is that far above the
 * others' mean, and also more than 64 MiB above it. A warning ends once the rank is less than a
 * tenth above the mean. */

enum { REPORT_BALANCE_STEPS = 10 };

typedef enum report_balance_kind {
    REPORT_BALANCE_SLOW,
    REPORT_BALANCE_LARGE,
    REPORT_BALANCE_KINDS
} report_balance_kind;

typedef struct report_balance report_balance;

/* Called when a rank becomes slow or large (`is` = 1), and when it ceases to be so (`is` = 0).
 * ratio: of the rank's time or memory to the others' mean. */
typedef void (*report_balance_fn)(void *ctx, int rank, report_balance_kind kind, int is,
                                  double ratio);

/* Returns NULL if out of memory. */
report_balance *report_balance_create(const fsdp_micro_batches *micro_batches,
                                      report_balance_fn notify, void *ctx);
void report_balance_destroy(report_balance *b);

/* Adds a step: the time that each rank spent computing, and its peak memory so far; [world]
 * each. */
void report_balance_step(report_balance *b, const double *compute_s, const double *bytes);

/* The reports of a run: one line per step, warnings about ranks that differ from the others, and a
 * table at the end. */

typedef struct run_report {
    trainer *t;
    struct report_metrics *lines; /* on rank 0; NULL if there is no metrics file */
    report_console console;       /* on rank 0 */
    struct report_balance *ranks; /* on rank 0 */
    double *usage;                /* [5 * world] on rank 0; see gather_usage */
    struct report_trace *trace;   /* NULL without --trace */
    bool lines_fail;              /* the last line could not be written */
    bool is_mute;                 /* stdout has failed */
    uint64_t steps;               /* steps reported so far */
    uint64_t skipped;             /* batches in which nothing counts for the loss */
    double begin, line_at;        /* when the run began, and when the last line was written */
    double spent[TIMELINE_SPENT]; /* the timeline's seconds at the last line */
    uint64_t sent, sent_across;   /* bytes sent up to the last line */
} run_report;

/* Collective, like all functions of run_report. Opens the metrics file and the trace's file. */
int report_begin(run_report *r, trainer *t, dcp_error *err);
/* Excludes `seconds` from the time of the step that is reported next. */
void report_exclude_time(run_report *r, double seconds);

/* Reports a step. evaluated: the evaluation at the end of the step; ignored unless evaluated->done
 * is set. */
void report_step(run_report *r, const step_result *result, const step_evaluation *evaluated);
/* Reports an evaluation of the state from which the run starts, at the step of that state. The
 * evaluation took `seconds`, and becomes part of that step's line. */
void report_evaluation(run_report *r, const step_evaluation *evaluated, double seconds);
/* Ends the reports. Returns the run's exit status: `status`, but PROGRAM_FAILED instead of
 * PROGRAM_DONE if lines for stdout or the trace were lost. */
int report_end(run_report *r, int status);

/* --plot: draws loss, speed and the cost of saves from the metrics file `metrics` as the SVG file
 * `path`, which is made, or replaced if it is a drawing. DCP_ERR_ARG: `metrics` is not a metrics
 * file, or `path` is another file. DCP_ERR_IO: the drawing could not be written. */
int report_plot(const char *metrics, const char *path, dcp_error *err);
