/* The metrics file: one JSON object per step. Each line names its run, and a run continues only a
 * file with its own lines. A run holds a lock on the file while it writes the file. If the file has
 * lines of another run, the file is renamed first: to FILE.old.1 or, if that exists, to FILE.old.2,
 * and so on. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include <dcp/error.h>

/* The run that opens a file. */
typedef struct report_file_run {
    const char *name;   /* 16 hexadecimal digits */
    const char *before; /* the name of the run whose step this run continues from; "" if unknown */
    uint64_t step;      /* that step; 0: it starts from the beginning */
} report_file_run;

/* The beginning of a line, and the member that names its run. */
#define REPORT_LINE_START "{\"step\": "
#define REPORT_LINE_RUN "\"run\": \""

/* Checks that `path` can be a metrics file. DCP_ERR_ARG: it exists and is not one. */
int report_file_check(const char *path, dcp_error *err);

/* The values of a line. */

enum { REPORT_MAX_LOSSES = 2 };

typedef struct report_values {
    uint64_t step;
    double loss, grad_norm, lr;
    size_t n_losses; /* the number of losses whose weighted sum is `loss` */
    const char *loss_names[REPORT_MAX_LOSSES];
    double losses[REPORT_MAX_LOSSES], eval_losses[REPORT_MAX_LOSSES];
    uint64_t tokens; /* tokens consumed since the start of the run */
    double tokens_per_s, mfu;
    double step_s; /* the time from the last line to this one, including a save between them */
    double forward_s, backward_s, comm_s, gather_wait_s, optimizer_s, data_s;
    double save_stall_s; /* the wait for saves since the last line */
    uint64_t mem_peak_bytes;
    uint64_t device_peak_bytes; /* 0: no device */
    uint64_t partial_sums_bytes;
    uint64_t state_bytes; /* parameters, gradients and moments of rank 0 in memory */
    uint64_t sent_bytes;  /* bytes that rank 0 has sent in this step, for gathers and reductions */
    uint64_t sent_across_bytes; /* the part of sent_bytes that left the group */
    double imbalance;
    int slowest_rank; /* the rank with the longest compute time */
    int ranks;
    uint64_t skipped; /* batches skipped right before this step, because nothing in them counts for
                         the loss */
    bool evaluated;   /* whether the members that begin with `eval_` are valid */
    double eval_loss, eval_s;
    double eval_accuracy; /* below 0: the model is not a classifier */
    bool is_proven;       /* whether state_id is valid */
    uint64_t state_id;
} report_values;

typedef struct report_metrics report_metrics;

/* Opens `path` for the lines of `run`. DCP_ERR_BUSY: another process writes the file. DCP_ERR_ARG:
 * it is not a metrics file, or cannot be opened. DCP_ERR_IO: it cannot be read. */
int report_metrics_open(const char *path, const report_file_run *run, report_metrics **out,
                        dcp_error *err);
/* NULL is ignored. */
void report_metrics_close(report_metrics *m);

/* Adds a line. It is in the file when this function returns, so a step that is saved later always
 * has its line. After a failure nothing of the line remains, and the caller can try to write the
 * next line. */
int report_metrics_write(report_metrics *m, const report_values *values, dcp_error *err);

/* Adds an evaluation to the line of step values->step, which an earlier start has written. Does
 * nothing if that is not the file's last line, or the file cannot be read. */
int report_metrics_add_evaluation(report_metrics *m, const report_values *values, dcp_error *err);

/* Returns mfu, limited to 1: values->mfu exceeds 1 if the peak (setup_device_peak) was measured too
 * low. */
double report_metrics_utilization(const report_values *values);
