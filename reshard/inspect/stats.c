/* Each batch is measured in two passes and joined to what came before (Chan, Golub, LeVeque 1979),
 * so that large means do not swallow small deviations. */
#include "inspect/stats.h"

#include <math.h>

uint64_t stats_finite(const stats *s) { return s->n - s->nan - s->inf; }

static void count(stats *s, const double *values, uint64_t n) {
    uint64_t zeros = 0, nan = 0, inf = 0;
    for (uint64_t i = 0; i < n; i++) {
        zeros += values[i] == 0;
        nan += values[i] != values[i];
        inf += fabs(values[i]) == (double)INFINITY;
    }
    s->n = n;
    s->zeros = zeros;
    s->nan = nan;
    s->inf = inf;
}

enum { LANES = 8 };

typedef struct lanes {
    double min[LANES], max[LANES], sum[LANES], squares[LANES];
} lanes;

/* n values, a lane each. */
static void add_row(lanes *l, const double *values, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        l->sum[i] += values[i];
        l->min[i] = values[i] < l->min[i] ? values[i] : l->min[i];
        l->max[i] = values[i] > l->max[i] ? values[i] : l->max[i];
    }
}

static void add_squares(lanes *l, const double *values, uint64_t n, double mean) {
    for (uint64_t i = 0; i < n; i++) l->squares[i] += (values[i] - mean) * (values[i] - mean);
}

/* Sums side by side, which processors add at once. */
static void measure(stats *s, const double *values, uint64_t n) {
    lanes l = {0};
    uint64_t whole = n - n % LANES;
    for (int i = 0; i < LANES; i++) l.min[i] = l.max[i] = values[0];
    for (uint64_t i = 0; i < whole; i += LANES) add_row(&l, values + i, LANES);
    add_row(&l, values + whole, n - whole);
    for (int i = 0; i < LANES; i++) s->mean += l.sum[i];
    s->mean /= (double)n;
    for (uint64_t i = 0; i < whole; i += LANES) add_squares(&l, values + i, LANES, s->mean);
    add_squares(&l, values + whole, n - whole, s->mean);
    s->min = l.min[0];
    s->max = l.max[0];
    for (int i = 0; i < LANES; i++) {
        s->min = l.min[i] < s->min ? l.min[i] : s->min;
        s->max = l.max[i] > s->max ? l.max[i] : s->max;
        s->squares += l.squares[i];
    }
}

/* The same where some are to be left out. */
static void measure_finite(stats *s, const double *values, uint64_t n) {
    double kept[256];
    stats all = {0};
    for (uint64_t i = 0, m = 0; i < n; i++) {
        if (isfinite(values[i])) kept[m++] = values[i];
        if (m == sizeof kept / sizeof *kept || (i + 1 == n && m)) {
            stats part = {.n = m};
            measure(&part, kept, m);
            stats_join(&all, &part);
            m = 0;
        }
    }
    s->min = all.min;
    s->max = all.max;
    s->mean = all.mean;
    s->squares = all.squares;
}

void stats_join(stats *s, const stats *more) {
    uint64_t seen = stats_finite(s), added = stats_finite(more);
    if (added) {
        double total = (double)(seen + added), apart = more->mean - s->mean;
        s->min = seen && s->min < more->min ? s->min : more->min;
        s->max = seen && s->max > more->max ? s->max : more->max;
        s->squares += more->squares + apart * apart * (double)seen * (double)added / total;
        s->mean += apart * (double)added / total;
    }
    s->n += more->n;
    s->zeros += more->zeros;
    s->nan += more->nan;
    s->inf += more->inf;
}

void stats_add(stats *s, const double *values, uint64_t n) {
    stats batch = {0};
    if (!n) return;
    count(&batch, values, n);
    if (batch.nan || batch.inf)
        measure_finite(&batch, values, n);
    else
        measure(&batch, values, n);
    stats_join(s, &batch);
}

double stats_std(const stats *s) {
    uint64_t finite = stats_finite(s);
    if (!isfinite(s->squares)) return (double)NAN; /* of either sign, where squares overflowed */
    return finite ? sqrt(s->squares / (double)finite) : 0;
}
