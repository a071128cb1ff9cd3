/* The metrics file: one JSON object per step, whose lines are in it, and who writes it. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include <dcp/error.h>

/* The file of metrics: whose lines are in it, and who writes it. Each line has its run's name, so a
 * run goes on with its own lines alone. While a run writes the file it holds a lock on it. What
 * another run wrote is moved to a file of its own, FILE.old.1, FILE.old.2 and so on, of which none
 * is ever written over. */

/* The run that opens a file. */
typedef struct report_file_run {
    const char *name;   /* 16 hexadecimal digits */
    const char *before; /* that of the run whose step it goes on from; "": not known */
    uint64_t step;      /* that step; 0: it starts afresh */
} report_file_run;

/* How a line begins, and the member that names its run. */
#define REPORT_LINE_START "{\"step\": "
#define REPORT_LINE_RUN "\"run\": \""

/* DCP_ERR_ARG: a file of that name is there, and no metrics file. */
int report_file_check(const char *path, dcp_error *err);

/* The metrics file: one JSON object a step. */

enum { REPORT_MOST_LOSSES = 2 };

typedef struct report_values {
    uint64_t step;
    double loss, grad_norm, lr;
    size_t n_losses; /* that the loss is the weighted sum of; 1: it is one */
    const char *loss_names[REPORT_MOST_LOSSES];
    double losses[REPORT_MOST_LOSSES], eval_losses[REPORT_MOST_LOSSES];
    uint64_t tokens; /* consumed since the start of the run */
    double tokens_per_s, mfu;
    double step_s; /* from the last line to this one: with the save between them */
    double forward_s, backward_s, comm_s, gather_wait_s, optimizer_s, data_s;
    double save_stall_s; /* of the save between the last line and this one */
    uint64_t mem_peak_bytes;
    uint64_t device_peak_bytes; /* 0: no device */
    uint64_t partial_sums_bytes;
    uint64_t state_bytes;       /* parameters, gradients and moments of rank 0 in memory */
    uint64_t sent_bytes;        /* by rank 0 in this step, for gathers and reductions */
    uint64_t sent_across_bytes; /* the part of them to other groups that hold the state */
    double imbalance;
    int slowest_rank; /* whose imbalance it is */
    int ranks;
    uint64_t skipped; /* batches that had nothing to learn, before this step's; 0: none */
    int evaluated;    /* whether the next three are there */
    double eval_loss, eval_s;
    double eval_accuracy; /* below 0: the model is no classifier */
    int is_proven;        /* whether the next is there */
    uint64_t state_id;
} report_values;

typedef struct report_metrics report_metrics;

/* Opens `path` for the lines of that run; errors as report_file_open's. */
int report_metrics_open(const char *path, const report_file_run *run, report_metrics **out,
                        dcp_error *err);
/* NULL is ignored. */
void report_metrics_close(report_metrics *m);

/* Adds a line; it is in the file when this returns, so that a step that is saved has its line
 * whatever happens then. Where it fails, nothing of the line is left, and the next may be tried. */
int report_metrics_write(report_metrics *m, const report_values *values, dcp_error *err);

/* Adds an evaluation to the line of its step, values->step, which an earlier start wrote last.
 * Nothing where the file does not end with that line, or is none that can be read. */
int report_metrics_add_evaluation(report_metrics *m, const report_values *values, dcp_error *err);

/* mfu, at most 1: above it the fastest products were measured too slow. */
double report_metrics_utilization(const report_values *values);
