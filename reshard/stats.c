/* Each batch is measured in two passes and joined to what came before (Chan, Golub, LeVeque 1979),
 * so that large means do not swallow small deviations. */
#include "stats.h"

#include <math.h>

static void measure(stats *s, const double *values, uint64_t n) {
    double sum = 0;
    for (uint64_t i = 0; i < n; i++) {
        if (isnan(values[i])) {
            s->nan++;
            continue;
        }
        if (s->n++ == 0) s->min = s->max = values[i];
        if (values[i] < s->min) s->min = values[i];
        if (values[i] > s->max) s->max = values[i];
        sum += values[i];
    }
    s->mean = s->n ? sum / (double)s->n : 0;
    for (uint64_t i = 0; i < n; i++)
        if (!isnan(values[i])) s->squares += (values[i] - s->mean) * (values[i] - s->mean);
}

void stats_add(stats *s, const double *values, uint64_t n) {
    stats batch = {0};
    measure(&batch, values, n);
    uint64_t seen = s->n - s->nan;
    if (batch.n) {
        double total = (double)(seen + batch.n), apart = batch.mean - s->mean;
        s->min = seen && s->min < batch.min ? s->min : batch.min;
        s->max = seen && s->max > batch.max ? s->max : batch.max;
        s->mean += apart * (double)batch.n / total;
        s->squares += batch.squares + apart * apart * (double)seen * (double)batch.n / total;
    }
    s->n += n;
    s->nan += batch.nan;
}

double stats_std(const stats *s) {
    return s->n > s->nan ? sqrt(s->squares / (double)(s->n - s->nan)) : 0;
}
