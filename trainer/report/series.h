/* A metrics file as columns. */
#ifndef TRAINER_REPORT_SERIES_H
#define TRAINER_REPORT_SERIES_H

#include <stddef.h>

#include <dcp/error.h>

typedef enum series_column {
    SERIES_STEP,
    SERIES_LOSS,
    SERIES_TOKENS_PER_S,
    SERIES_STALL,
    SERIES_EVAL_LOSS, /* NAN where the step ended without an evaluation */
    SERIES_RANKS,
    SERIES_COLUMNS,
} series_column;

typedef struct series {
    double *columns[SERIES_COLUMNS]; /* [n] each */
    size_t n, room;
} series;

/* Reads all lines; a last one that a kill cut is left out. Where a line's step is not after the
 * last one's, a run went back: what it did again counts. DCP_ERR_ARG: no file, or something else
 * than metrics in it. In either case series_free frees it. */
int series_read(const char *path, series *out, dcp_error *err);
void series_free(series *s);

#endif
