#include "report/axis.h"

#include <math.h>
#include <stdio.h>

static double round_step(double least) {
    const double power = pow(10, floor(log10(least)));
    const double part = least / power;
    return (part <= 1 ? 1 : part <= 2 ? 2 : part <= 5 ? 5 : 10) * power;
}

axis axis_over(double low, double high, int ticks, int tight) {
    axis a = {.low = low, .high = high};
    if (!(high > low)) { /* one value: it stands in the middle */
        const double around = low != 0 ? fabs(low) / 2 : 0.5;
        a.low -= around;
        a.high += around;
    }
    a.step = round_step((a.high - a.low) / ticks);
    if (tight) return a;
    a.low = floor(a.low / a.step) * a.step;
    a.high = ceil(a.high / a.step) * a.step;
    return a;
}

double axis_place(const axis *a, double value) {
    return a->from + (value - a->low) / (a->high - a->low) * (a->to - a->from);
}

double axis_first_tick(const axis *a) { return ceil(a->low / a->step - 1e-9) * a->step; }

void axis_label(const axis *a, double tick, char *out, size_t size) {
    static const char *const units[] = {"", "k", "M", "G", "T"};
    int unit = 0;
    double scale = 1;
    const double most = fmax(fabs(a->low), fabs(a->high));
    for (; unit < 4 && most >= 10000 * scale; unit++) scale *= 1000;
    const double decimals = ceil(-log10(a->step / scale) - 1e-9);
    const double value = fabs(tick) < a->step / 2 ? 0 : tick / scale; /* not "-0" */
    snprintf(out, size, "%.*f%s", decimals > 0 ? (int)decimals : 0, value,
             value != 0 ? units[unit] : "");
}

size_t axis_thin(const axis *a, const double *x, const double *y, size_t n, size_t columns,
                 size_t *keep) {
    size_t kept = 0;
    const double width = (a->high - a->low) / (double)columns;
    for (size_t i = 0; i < n;) {
        size_t low = i, high = i, next = i;
        const double column = floor((x[i] - a->low) / width);
        for (; next < n && floor((x[next] - a->low) / width) == column; next++) {
            if (y[next] < y[low]) low = next;
            if (y[next] > y[high]) high = next;
        }
        const size_t candidates[] = {i, low < high ? low : high, low < high ? high : low, next - 1};
        for (int c = 0; c < 4; c++) { /* the first and the last of a column only at the ends */
            const int is_edge = (c == 0 && i > 0) || (c == 3 && next < n);
            if (!is_edge && (!kept || keep[kept - 1] < candidates[c])) keep[kept++] = candidates[c];
        }
        i = next;
    }
    return kept;
}
