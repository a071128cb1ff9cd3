/* Smallest, largest, mean and standard deviation of a stream of numbers, and how many are zero, NaN
 * or infinite. */
#pragma once

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

typedef struct inspect_stats {
    uint64_t n; /* numbers seen */
    uint64_t zeros, nan, inf;
    double min, max, mean; /* of finite ones */
    double squares;        /* sum of squared distances from the mean */
} inspect_stats;

void inspect_stats_add(inspect_stats *s, const double *values, uint64_t n);
/* Adds the statistics of other numbers to *s. */
void inspect_stats_join(inspect_stats *s, const inspect_stats *more);
uint64_t inspect_stats_finite(const inspect_stats *s);
double inspect_stats_std(const inspect_stats *s); /* of the population */

/* How many numbers are of which magnitude: a bin for each power of two, so that the range need not
 * be known before. */
#define HISTOGRAM_BINS 2048 /* exponents of fp64 */

typedef struct inspect_histogram {
    uint64_t positive[HISTOGRAM_BINS], negative[HISTOGRAM_BINS]; /* without zero, NaN, infinity */
} inspect_histogram;

void inspect_histogram_add(inspect_histogram *h, const double *values, uint64_t n);
void inspect_histogram_join(inspect_histogram *h, const inspect_histogram *more);

/* Draws negative and positive numbers on both sides of an axis, a row for one or more powers of
 * two, `rows` at most; `total` is what percentages are of. Nothing where there are no numbers. */
void inspect_histogram_draw(const inspect_histogram *h, uint64_t total, int rows, FILE *out);

/* {"log2": the first bin's exponent, "negative": [...], "positive": [...]}: bin i has magnitudes
 * from 2^(log2 + i) to twice that. null where there are no numbers. */
json_t *inspect_histogram_json(const inspect_histogram *h);
