/* Rates as functions of the step alone, so that a resumed run needs no other state. */
#include "optim/schedule.h"

#include <math.h>

/* How much of the decay that starts after step `from` has passed: 0 to 1. */
static double passed(const config *c, double from, uint64_t step) {
    const double to = (double)c->max_steps, at = (double)step;
    if (at <= from) return 0;
    return at >= to ? 1 : (at - from) / (to - from);
}

double optim_schedule_lr(const config *c, uint64_t step) {
    const double pi = 3.141592653589793, warmup = (double)c->warmup_steps;
    if (step < c->warmup_steps)
        return c->lr * (c->warmup_is_log ? log((double)step) / log(warmup) : (double)step / warmup);
    double left = 1; /* 1: all of lr, 0: min_lr_ratio of it */
    if (c->schedule == SCHEDULE_LINEAR) left = 1 - passed(c, warmup, step);
    if (c->schedule == SCHEDULE_COSINE) left = 0.5 * (1 + cos(pi * passed(c, warmup, step)));
    if (c->schedule == SCHEDULE_WSD) {
        const double stable = (double)c->max_steps * (1 - c->decay_ratio);
        left = 1 - passed(c, fmax(stable, warmup), step);
    }
    return c->lr * (c->min_lr_ratio + (1 - c->min_lr_ratio) * left);
}
