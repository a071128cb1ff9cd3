/* Finding a rank that is slower, or larger, than the others: by more than a fifth of their mean.
 *
 * Times are compared per micro-batch over REPORT_BALANCE_STEPS steps. A rank is slow if it was so
 * in most of these steps and in their sum, and if that costs a hundredth of a second a step. A rank
 * is large if it is also at least 64 MiB above the mean. A warning ends once the rank is less than
 * a tenth above the mean. */
#pragma once

#include "fsdp/micro_batches.h"

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
