/* What a run shows of its steps while it goes on, on rank 0's stdout: a line every so many steps,
 * or, on a terminal, a bar in place of the lines, which is drawn over. */
#pragma once

#include "report/metrics.h"

enum {
    REPORT_LINE_COLUMNS = 100, /* of a line at most */
    REPORT_FIRST_LINES = 20
};

typedef struct report_console {
    uint64_t every, max_steps;
    int are_tokens; /* what a step consumes; else samples */
    int columns;    /* of the bar; 0: lines */
    double drawn_s; /* when it, or the line before, was */
    uint64_t seen;  /* steps of this start */
    double step_s;  /* a mean of the last of them, for what is left */
    uint64_t steps; /* since what was shown last, of which the next are sums */
    double seconds, trained_s, tokens;
} report_console;

/* every: steps from one line to the next; 0: the first REPORT_FIRST_LINES steps of this start have
 * one each, then a step has one where the last line is a second old. The run's last step has one in
 * any case. columns: 0, or those of the terminal that stdout is. */
void report_console_begin(report_console *c, uint64_t every, uint64_t max_steps, int are_tokens,
                          int columns);

/* Columns of the terminal that the lines of this process go to; 0: they go elsewhere. */
int report_console_columns(void);

/* Shows a step, and what it ended with; -1 with errno where stdout could not be written. */
int report_console_step(report_console *c, const report_values *values);

/* Shows an evaluation alone; errors as above. */
int report_console_evaluation(const report_values *values);

/* The line of a step, with step_s and tokens_per_s as means: what has room in so many columns, most
 * of all what is left of the run (left_s; below 0: nothing is told). text[columns + 1]. */
void report_console_line(const report_values *values, uint64_t max_steps, int are_tokens,
                         double left_s, int columns, char *text);
