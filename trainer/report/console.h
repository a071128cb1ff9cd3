/* The progress of a run on rank 0's stdout: a line every few steps or, on a terminal, a bar that is
 * updated in place. */
#pragma once

#include <stdbool.h>

#include "report/metrics.h"

enum {
    REPORT_LINE_COLUMNS = 100, /* the longest line */
    REPORT_FIRST_LINES = 20
};

typedef struct report_console {
    uint64_t every, max_steps;
    bool are_tokens; /* a step consumes tokens; otherwise samples */
    int columns;     /* columns of the progress bar; 0: lines are printed instead */
    double drawn_s;  /* when the bar or the last line was drawn */
    uint64_t seen;   /* steps of this start so far */
    double step_s;   /* a moving mean, to estimate the remaining time */
    uint64_t steps;  /* since the last output; the next three members are sums over these steps */
    double seconds, trained_s, tokens;
} report_console;

/* every: steps from one line to the next. 0: one line for each of the first REPORT_FIRST_LINES
 * steps of this start; after them a step gets a line if the last line is at least a second old. The
 * run's last step always gets one. columns: the number of columns of the terminal that is stdout; 0
 * if stdout is not a terminal. */
void report_console_begin(report_console *c, uint64_t every, uint64_t max_steps, bool are_tokens,
                          int columns);

/* Returns the usable columns of the terminal that shows this process's lines; 0 if there is no
 * terminal. */
int report_console_columns(void);

/* Shows a step and, if they were computed, its evaluation and its state id (--prove-every). Returns
 * -1 with errno if stdout could not be written. */
int report_console_step(report_console *c, const report_values *values);

/* Shows only an evaluation. Returns the same errors as report_console_step. */
int report_console_evaluation(const report_values *values);

/* Makes the line of a step, in which step_s and tokens_per_s are means. If the line is longer than
 * `columns`, the least important parts are left out. left_s: the run's remaining time; not shown if
 * below 0. `text` must have room for columns + 1 bytes. */
void report_console_line(const report_values *values, uint64_t max_steps, bool are_tokens,
                         double left_s, int columns, char *text);
