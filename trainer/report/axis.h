/* From values to places on a drawing, with round numbers for ticks. */
#ifndef TRAINER_REPORT_AXIS_H
#define TRAINER_REPORT_AXIS_H

#include <stddef.h>

typedef struct axis {
    double low, high; /* round, or, of a tight axis, the values' own */
    double step;      /* from tick to tick: 1, 2 or 5 times a power of ten */
    double from, to;  /* where they lie on the drawing */
} axis;

/* An axis over low ... high with some `ticks` ticks. `tight`: it ends with the values. */
axis axis_over(double low, double high, int ticks, int tight);
double axis_place(const axis *a, double value);
/* The first tick; others follow by a->step, up to a->high. */
double axis_first_tick(const axis *a);
/* A tick as text, with the digits that tell it from its neighbours: "0.25", "20k", "1.5M". */
void axis_label(const axis *a, double tick, char *out, size_t size);

/* Which of n points to draw where they are more than can be told apart: of each of `columns`
 * stretches of x the lowest and the highest, so that no peak is lost, and the first and last of
 * all. x ascends. keep[n] receives indices in order; returns how many. */
size_t axis_thin(const axis *a, const double *x, const double *y, size_t n, size_t columns,
                 size_t *keep);

#endif
